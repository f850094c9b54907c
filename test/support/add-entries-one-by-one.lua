-- Adds drops to many timelines in one call.
--
-- KEYS     the timelines, one node's worth (Redis Cluster: exactly one); or none, and then
-- ARGV[6]  prefix of the keys
-- ARGV[7]  rest of each key, joined by ","
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since what it
--          carries may have been overtaken by a deletion
-- ARGV[2]  cap on drops per timeline
-- ARGV[3]  size a timeline is trimmed down to once it passes the cap
-- ARGV[4]  time to live of a key that is created here, ms; 0: none
-- ARGV[5]  "1": only where a ~floor stands
-- ARGV[8+] score, drop id, score, drop id, ...
-- returns  how many entries are new
local call = redis.call
local time = call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the write came after its deadline')
end
local cap, low, ttl = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local active = ARGV[5] == '1'
local scores, drops = {}, {}
for i = 8, #ARGV, 2 do
  scores[#scores + 1] = tonumber(ARGV[i])
  drops[#drops + 1] = ARGV[i + 1]
end
local total, entries = 0, #drops

-- The floor rises to the last entry cut off. A rebuild under way (negative floor) could
-- miss what is cut off here: its floor goes, and it starts over.
local function trim(key, floor, size)
  if floor then call('ZREM', key, '~floor') end
  local cut = call('ZPOPMIN', key, size - low)
  if floor and floor >= 0 then call('ZADD', key, math.max(floor, tonumber(cut[#cut]), 1), '~floor') end
end

local function add(key)
  local floor = call('ZSCORE', key, '~floor')
  if floor then
    floor = tonumber(floor)
  elseif active then
    return
  end
  local added = 0
  for i = 1, entries do
    -- Entries at or below the floor are found by reading past it.
    if not floor or floor <= 0 or scores[i] > floor then
      added = added + call('ZADD', key, 'LT', scores[i], drops[i])
    end
  end
  if added == 0 then return end
  total = total + added
  local size = call('ZCARD', key)
  if ttl > 0 and size == added then call('PEXPIRE', key, ttl) end
  if floor then size = size - 1 end
  if size > cap then trim(key, floor, size) end
end

if #KEYS > 0 then
  for _, key in ipairs(KEYS) do add(key) end
else
  local prefix = ARGV[6]
  for rest in string.gmatch(ARGV[7], '[^,]+') do add(prefix .. rest) end
end
return total
