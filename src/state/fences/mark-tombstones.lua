-- Begins or finishes a refill of the tombstones, if they were lost.
--
-- KEYS[1]  the tombstones
-- ARGV[1]  deadline by this server's clock, ms; a later call is refused, since it vouches for the data
-- ARGV[2]  "begin": tombstones that are not complete get the mark as their floor
--          "finish": tombstones that still have the mark are complete; those that were lost again do not have it
-- ARGV[3]  the mark, a negative number that no other refill uses
-- ARGV[4]  the time down to which they are complete after a refill, ms
-- returns  1; 0 if they were not marked
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the refill came after its deadline')
end
local floor = tonumber(redis.call('ZSCORE', KEYS[1], FLOOR) or '-inf')
if ARGV[2] == 'begin' and floor < 0 then
  redis.call('ZADD', KEYS[1], ARGV[3], FLOOR)
elseif ARGV[2] == 'finish' and floor == tonumber(ARGV[3]) then
  redis.call('ZADD', KEYS[1], ARGV[4], FLOOR)
else
  return 0
end
return 1
