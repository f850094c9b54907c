-- Takes a lease, or keeps it for longer.
--
-- KEYS[1]  the lease
-- ARGV[1]  its owner
-- ARGV[2]  for how long, ms
-- returns  1; 0 if somebody else has it
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
