-- Counts an attempt at a message, once however often it is counted under one name.
--
-- KEYS[1]  the message
-- ARGV[1]  time to live, ms
-- ARGV[2]  name of the attempt
-- returns  how many attempts there were, this one included
redis.call('SADD', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('SCARD', KEYS[1])
