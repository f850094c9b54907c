-- Notes a drop of an author, and counts those of the last while: each once, however often it is noted.
--
-- KEYS[1]  the author's drops by their times
-- ARGV[1]  the drop
-- ARGV[2]  its time, ms since the epoch
-- ARGV[3]  how far back drops count, ms
-- ARGV[4]  cap on drops
-- returns  the drops in that while up to the time of this one
local call, key, time, while_ms = redis.call, KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3])
call('ZADD', key, time, ARGV[1])
call('ZREMRANGEBYSCORE', key, '-inf', time - while_ms)
call('ZREMRANGEBYRANK', key, 0, -1 - tonumber(ARGV[4]))
call('PEXPIRE', key, while_ms)
return call('ZCOUNT', key, time - while_ms, time)
