-- Marks a timeline as being rebuilt.
--
-- KEYS[1]  the timeline
-- KEYS[2]  of a home: the hash of its user's hidden users
-- KEYS[3]  of a home: the copy of its user's followings; it is removed, so that the end of the rebuild judges replies
--          that come meanwhile
-- ARGV[1]  the rebuild's mark, which becomes the floor: a negative number that no other rebuild uses
-- ARGV[2]  time to live of the key, ms; 0: none
-- ARGV[3]  "1": also if the timeline is complete; the time to live stays, since this is no read
-- ARGV[4]  "1": a home is complete only beside a copy; else only without one
-- returns  false if the timeline is complete; 0 if the hash is incomplete: fan-out could not decide what to write
--          meanwhile; else the drop ids that it held before
local afresh = ARGV[3] == '1'
local floor = redis.call('ZSCORE', KEYS[1], FLOOR)
local has_copy = KEYS[3] and redis.call('HGET', KEYS[3], STATE) == 'complete'
local is_judged = not KEYS[3] or has_copy == (ARGV[4] == '1')
if floor and tonumber(floor) >= 0 and is_judged and not afresh then return false end
if KEYS[2] and redis.call('HGET', KEYS[2], STATE) ~= 'complete' then return 0 end
if KEYS[3] then redis.call('UNLINK', KEYS[3]) end
local left = redis.call('PTTL', KEYS[1])
if floor then redis.call('ZREM', KEYS[1], FLOOR) end
local held = redis.call('ZRANGE', KEYS[1], 0, -1)
redis.call('ZADD', KEYS[1], ARGV[1], FLOOR)
local ttl = tonumber(ARGV[2])
if ttl > 0 then redis.call('PEXPIRE', KEYS[1], afresh and left > 0 and left or ttl) end
return held
