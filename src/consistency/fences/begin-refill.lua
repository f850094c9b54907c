-- Begins a refill of the tombstones if they were lost.
--
-- KEYS[1]  the tombstones
-- ARGV[1]  the mark, a negative number that no other refill uses; it becomes the floor
-- returns  1; 0 if they are complete
local floor = redis.call('ZSCORE', KEYS[1], '~floor')
if floor and tonumber(floor) >= 0 then return 0 end
redis.call('ZADD', KEYS[1], ARGV[1], '~floor')
return 1
