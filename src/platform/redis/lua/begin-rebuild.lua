-- Marks a timeline as being rebuilt.
--
-- KEYS[1]  the timeline
-- ARGV[1]  a negative number nobody else uses: the rebuild's mark, planted as the floor
-- ARGV[2]  time to live of the key, ms; 0: none
-- returns  false where the timeline is complete; else the drop ids it held before
local floor = redis.call('ZSCORE', KEYS[1], '~floor')
if floor and tonumber(floor) >= 0 then return false end
if floor then redis.call('ZREM', KEYS[1], '~floor') end
local held = redis.call('ZRANGE', KEYS[1], 0, -1)
redis.call('ZADD', KEYS[1], ARGV[1], '~floor')
if tonumber(ARGV[2]) > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return held
