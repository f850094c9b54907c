-- Records that a user is logged out everywhere, now.
--
-- KEYS[1]  users by the time before which their tokens are refused
-- ARGV[1]  the user
-- ARGV[2]  a record is kept for this many ms
-- ARGV[3]  now, ms since the epoch; unset: the clock of Redis
-- returns  the time, ms since the epoch
local time = redis.call('TIME')
local now = tonumber(ARGV[3] or '') or time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
-- The clock of a server that took over may be behind.
redis.call('ZADD', KEYS[1], 'GT', now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]))
