-- Notes drops whose publication is under way: a sorted set of drop -> time of admission, ms since the epoch.
--
-- KEYS[1]  the set
-- ARGV[1]  time to live, ms
-- ARGV[2]  drops admitted up to then are forgotten, ms since the epoch
-- ARGV[3+] times of admission, each with its drop
-- returns  nothing
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
redis.call('ZADD', KEYS[1], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
