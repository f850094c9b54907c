-- Declares the tombstones complete after a refill.
--
-- KEYS[1]  the tombstones
-- ARGV[1]  deadline by this server's clock, ms; a later call is refused, since it vouches for the data
-- ARGV[2]  the mark
-- ARGV[3]  the time down to which they are complete, ms
-- returns  1; 0 if the mark is gone: they were lost again meanwhile
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the refill came after its deadline')
end
local mark = redis.call('ZSCORE', KEYS[1], '~floor')
if not mark or tonumber(mark) ~= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[3], '~floor')
return 1
