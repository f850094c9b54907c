-- Changes which authors are in sets of pulled authors that are known: groups of sets, each with authors of its own.
--
-- Sets that are being filled are removed. Their fills start over, since they may have read outdated followings.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since an author's state or a user's
--          follows may have changed back
-- ARGV[2]  "add" or "remove"
-- ARGV[3]  prefix of the keys
-- ARGV[4+] groups: the rest of each key, joined by ",", number of authors, and their tokens
-- returns  number of sets and members that have changed
local call = redis.call
local time = call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the change came after its deadline')
end
local command, prefix = ARGV[2] == 'add' and 'SADD' or 'SREM', ARGV[3]

local function change(key, first, last)
  if call('SISMEMBER', key, COMPLETE) == 1 then return call(command, key, unpack(ARGV, first, last)) end
  return call('DEL', key)
end

local total, at = 0, 4
while at <= #ARGV do
  local first, last = at + 2, at + 1 + tonumber(ARGV[at + 1])
  for rest in string.gmatch(ARGV[at], '[^,]+') do total = total + change(prefix .. rest, first, last) end
  at = last + 1
end
return total
