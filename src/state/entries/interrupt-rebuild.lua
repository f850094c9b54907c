-- Makes rebuilds under way start over, since what they have read may be outdated.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  prefix of the keys
-- ARGV[2]  rest of each key, joined by ","
-- returns  of each timeline { the floor that stands, or ""; the score of its oldest drop, or "" }
local call, result = redis.call, {}

local function interrupt(key)
  local floor = call('ZSCORE', key, FLOOR)
  if floor and tonumber(floor) < 0 then
    call('ZREM', key, FLOOR)
    floor = nil
  end
  local first = call('ZRANGE', key, 0, 1, 'WITHSCORES')
  local oldest = first[1] == FLOOR and first[4] or first[1] ~= FLOOR and first[2]
  result[#result + 1] = { floor or '', oldest or '' }
end

for rest in string.gmatch(ARGV[2], '[^,]+') do interrupt(ARGV[1] .. rest) end
return result
