-- Removes drops from many timelines in one call: groups of timelines, each with drops of its own.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since a follow
--          may have brought the drops back
-- ARGV[2]  prefix of the keys
-- ARGV[3+] groups: the rest of each key, joined by ",", number of drops, and
--          their ids
-- returns  number of removed entries
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the removal came after its deadline')
end
local total, at, prefix = 0, 3, ARGV[2]
while at <= #ARGV do
  local first, last = at + 2, at + 1 + tonumber(ARGV[at + 1])
  for token in string.gmatch(ARGV[at], '[^,]+') do
    total = total + redis.call('ZREM', prefix .. token, unpack(ARGV, first, last))
  end
  at = last + 1
end
return total
