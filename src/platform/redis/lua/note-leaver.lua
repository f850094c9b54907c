-- Notes that somebody left an author, after all who are noted, and forgets those noted too long ago.
--
-- KEYS[1]  the leavers of the author, by when they were noted; no two at one time
-- ARGV[1]  now, ms
-- ARGV[2]  how long a note is kept, ms
-- ARGV[3]  who left
-- returns  when that is noted, ms: now, or later where somebody is noted at that time
local now, keep = tonumber(ARGV[1]), tonumber(ARGV[2])
local newest = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local at = newest[2] and math.max(now, tonumber(newest[2]) + 1) or now
redis.call('ZADD', KEYS[1], at, ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. (now - keep))
redis.call('PEXPIRE', KEYS[1], keep)
return at
