-- Makes a rebuild under way start over, since what it has read may be outdated.
--
-- KEYS[1]  the timeline
-- returns  the floor that stands, or "" where none does
local floor = redis.call('ZSCORE', KEYS[1], '~floor')
if not floor then return '' end
if tonumber(floor) >= 0 then return floor end
redis.call('ZREM', KEYS[1], '~floor')
return ''
