-- Says that the tombstones are complete.
--
-- KEYS[1]  the tombstones
-- ARGV[1]  the refill's mark
-- ARGV[2]  the time down to which they are complete, ms
-- returns  1; 0 where the mark is gone: they were lost again meanwhile
local mark = redis.call('ZSCORE', KEYS[1], '~floor')
if not mark or tonumber(mark) ~= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[2], '~floor')
return 1
