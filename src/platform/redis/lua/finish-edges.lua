-- Says that the parts of the follow edges that were refilled are complete.
--
-- KEYS     the parts, one node's worth (Redis Cluster: exactly one); or none, and then
-- ARGV[3]  prefix of the keys
-- ARGV[4]  rest of each key, joined by ","
-- ARGV[1]  deadline by this server's clock, ms
-- ARGV[2]  a negative number nobody else uses: the refill's mark
-- returns  how many parts bear the mark; one that was lost again meanwhile does not
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the refill came after its deadline')
end
local total = 0

local function each(key)
  if redis.call('HGET', key, '~floor') ~= ARGV[2] then return end
  redis.call('HSET', key, '~floor', '1')
  total = total + 1
end

if #KEYS > 0 then
  for _, key in ipairs(KEYS) do each(key) end
else
  for rest in string.gmatch(ARGV[4], '[^,]+') do each(ARGV[3] .. rest) end
end
return total
