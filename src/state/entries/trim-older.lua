-- Removes drops created before a time from many timelines in one call.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused
-- ARGV[2]  the time, ms since the epoch
-- ARGV[3]  prefix of the keys
-- ARGV[4]  rest of each key, joined by ","
-- returns  number of removed entries
local call = redis.call
local time = call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the removal came after its deadline')
end
local before, total = ARGV[2], 0

-- The ~floor stays as it is, and so does the time to live.
local function trim(key)
  local floor = call('ZSCORE', key, FLOOR)
  local within = floor and tonumber(floor) >= 0 and tonumber(floor) < tonumber(before)
  -- The floor moves up meanwhile: an empty key would be removed, and lose its time to live.
  if within then call('ZADD', key, before, FLOOR) end
  total = total + call('ZREMRANGEBYSCORE', key, 0, '(' .. before)
  if within then call('ZADD', key, floor, FLOOR) end
end

for rest in string.gmatch(ARGV[4], '[^,]+') do trim(ARGV[3] .. rest) end
return total
