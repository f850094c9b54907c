-- Marks the tombstones as being refilled.
--
-- KEYS[1]  the tombstones
-- ARGV[1]  a negative number nobody else uses: the refill's mark, planted as the floor
-- returns  1; 0 where they are complete
local floor = redis.call('ZSCORE', KEYS[1], '~floor')
if floor and tonumber(floor) >= 0 then return 0 end
redis.call('ZADD', KEYS[1], ARGV[1], '~floor')
return 1
