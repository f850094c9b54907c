-- Ends a write under way: its reservation in sliding windows counts from now on, or is released.
--
-- KEYS     the windows of reserve.lua
-- ARGV[1]  the reservation, without its ~
-- ARGV[2]  1 if it counts
-- returns  nothing
for _, key in ipairs(KEYS) do
  local time = redis.call('ZSCORE', key, '~' .. ARGV[1])
  if time then
    -- A key that is empty for an instant would lose its time to live.
    if ARGV[2] == '1' then redis.call('ZADD', key, time, ARGV[1]) end
    redis.call('ZREM', key, '~' .. ARGV[1])
  end
end
