-- Marks a timeline as being rebuilt.
--
-- KEYS[1]  the timeline
-- KEYS[2]  of a home: the hash of those whose drops its user does not see
-- KEYS[3]  of a home: the copy of whom its user follows, which goes: replies that come meanwhile are judged at the end
-- ARGV[1]  a negative number nobody else uses: the rebuild's mark, planted as the floor
-- ARGV[2]  time to live of the key, ms; 0: none
-- ARGV[3]  "1": also if the timeline is complete; that is no read, so that a time to live goes on as it was
-- ARGV[4]  "1": a home is complete only beside a copy; else only without one
-- returns  false if the timeline is complete; 0 if the hash is not: fan-out could not tell what it may write
--          meanwhile; else the drop ids it held before
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
