-- Gives a lease back.
--
-- KEYS[1]  the lease
-- ARGV[1]  its owner
-- returns  1; 0 if somebody else has it by now
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
