-- Reads the deleted drops of authors, newest first, until it has read enough.
--
-- KEYS     none; in a Redis Cluster one of the parts that ARGV names, which are all on its node
-- ARGV[1]  prefix of the parts
-- ARGV[2]  prefix of the deleted drops
-- ARGV[3]  how long a deletion is kept, ms
-- ARGV[4]  how many drops of an author are read, and of all authors are enough
-- ARGV[5+] of each author: part, author
-- returns  the drops of each of the first authors, one at least; nil where they were lost
local call, keep, most = redis.call, tonumber(ARGV[3]), tonumber(ARGV[4])
local seconds, result, total = tonumber(call('TIME')[1]), {}, 0

local function read(part, field, key)
  local held = call('HMGET', part, FLOOR, field)
  local noted = held[2] and string.match(held[2], ':(%d+)$')
  if noted and call('ZCARD', key) == 0 and seconds - noted < keep / 1000 - 60 then
    -- Lost, and not expired: the part is not complete until it is refilled, with what the log still has.
    call('HDEL', part, FLOOR, field)
    return false
  end
  return held[1] == '1' and call('ZRANGE', key, 0, most - 1, 'REV')
end

for i = 5, #ARGV, 2 do
  local part, author = ARGV[i], ARGV[i + 1]
  local drops = read(ARGV[1] .. part, author .. ':~deleted', ARGV[2] .. part .. ':' .. author)
  result[#result + 1] = drops
  if drops then total = total + #drops end
  if total >= most then break end
end
return result
