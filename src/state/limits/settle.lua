-- Ends a write under way: its reservation in sliding windows counts from now on, or is released.
--
-- KEYS     the windows of reserve.lua
-- ARGV[1]  the reservation, without its ~
-- ARGV[2+] for each window: for how many it counts now, and how many entries it has
-- returns  nothing
for index, key in ipairs(KEYS) do
  local time = redis.call('ZSCORE', key, '~' .. ARGV[1])
  local counts, entries = tonumber(ARGV[2 * index]), tonumber(ARGV[2 * index + 1])
  for number = 1, time and entries or 0 do
    local name = number == 1 and ARGV[1] or ARGV[1] .. '.' .. number
    -- A key that is empty for an instant would lose its time to live.
    if number <= counts then redis.call('ZADD', key, time, name) end
    redis.call('ZREM', key, '~' .. name)
  end
end
