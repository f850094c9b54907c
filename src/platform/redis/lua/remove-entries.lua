-- Removes drops from many timelines in one call.
--
-- KEYS     the timelines, one node's worth (Redis Cluster: exactly one); or none, and then
-- ARGV[2]  prefix of the keys
-- ARGV[3]  rest of each key, joined by ","
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since a follow
--          may have brought the drops back
-- ARGV[4+] drop ids
-- returns  how many entries were removed
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the removal came after its deadline')
end
local total, last = 0, #ARGV

local function remove(key)
  for i = 4, last do total = total + redis.call('ZREM', key, ARGV[i]) end
end

if #KEYS > 0 then
  for _, key in ipairs(KEYS) do remove(key) end
else
  local prefix = ARGV[2]
  for rest in string.gmatch(ARGV[3], '[^,]+') do remove(prefix .. rest) end
end
return total
