-- Tells which homes were read lately: a read gives a home a floor, and only reads renew the time to live.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  time to live that must be left, ms
-- ARGV[2]  prefix of the keys
-- ARGV[3]  rest of each key, joined by ","
-- returns  for each home 1 or 0
local least = tonumber(ARGV[1])

local function is_recent(key)
  if not redis.call('ZSCORE', key, FLOOR) then return 0 end
  local left = redis.call('PTTL', key)
  return (left < 0 or left >= least) and 1 or 0
end

local answers = {}
for rest in string.gmatch(ARGV[3], '[^,]+') do answers[#answers + 1] = is_recent(ARGV[2] .. rest) end
return answers
