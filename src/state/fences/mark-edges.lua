-- Begins or finishes a refill of the parts of the follow edges that were lost.
--
-- KEYS     none; in a Redis Cluster one of the parts that ARGV names, which are all on its node
-- ARGV[1]  deadline by this server's clock, ms
-- ARGV[2]  "begin": each part that is not complete gets the mark as its floor
--          "finish": each part that still has the mark is complete; a part that was lost again does not have it
-- ARGV[3]  the mark, a negative number that no other refill uses
-- ARGV[4]  prefix of the keys
-- ARGV[5]  rest of each key, joined by ","
-- returns  how many parts that were
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the refill came after its deadline')
end
local total = 0

local function each(key)
  local floor = redis.call('HGET', key, FLOOR)
  if ARGV[2] == 'begin' and floor ~= '1' then
    redis.call('HSET', key, FLOOR, ARGV[3])
    total = total + 1
  elseif ARGV[2] == 'finish' and floor == ARGV[3] then
    redis.call('HSET', key, FLOOR, '1')
    total = total + 1
  end
end

for rest in string.gmatch(ARGV[5], '[^,]+') do each(ARGV[4] .. rest) end
return total
