-- Counts one more attempt at a message.
--
-- KEYS[1]  the message
-- ARGV[1]  time to live, ms
-- returns  the sum
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return count
