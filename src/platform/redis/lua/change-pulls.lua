-- Adds an author to the sets of pulled authors that are known or removes the author; sets that are being filled go,
-- and their fills start over, since what they have read may be outdated.
--
-- KEYS     the sets (Redis Cluster: exactly one); or none
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since the author's state or the user's
--          follows may have changed back
-- ARGV[2]  prefix of the keys
-- ARGV[3]  rest of each key, joined by "," (none: KEYS)
-- ARGV[4]  "add" or "remove"
-- ARGV[5]  the author
-- returns  how many sets have changed
local call = redis.call
local time = call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the change came after its deadline')
end
local command, author = ARGV[4] == 'add' and 'SADD' or 'SREM', ARGV[5]

local function change(key)
  if call('SISMEMBER', key, '~complete') == 1 then return call(command, key, author) end
  return call('DEL', key)
end

local total = 0
for _, key in ipairs(KEYS) do total = total + change(key) end
for rest in string.gmatch(ARGV[3], '[^,]+') do total = total + change(ARGV[2] .. rest) end
return total
