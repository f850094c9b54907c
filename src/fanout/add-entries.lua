-- Adds drops to many timelines in one call: groups of timelines, each with drops of its own.
--
-- KEYS     none; in a Redis Cluster the one timeline that ARGV names
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since what it
--          carries may have been overtaken by a deletion
-- ARGV[2]  cap on drops per timeline
-- ARGV[3]  size a timeline is trimmed down to once it passes the cap
-- ARGV[4]  time to live of a key that is created here, ms; 0: none
-- ARGV[5]  "1": only where a ~floor stands
-- ARGV[6]  prefix of the keys
-- ARGV[7+] groups: the rest of each key, joined by ",", how many drops, and
--          score, drop id, score, drop id, ...
-- returns  how many entries are new and stand above the floor
local call = redis.call
local time = call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the write came after its deadline')
end
local cap, low, ttl = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local active, prefix = ARGV[5] == '1', ARGV[6]

-- The floor rises to the last entry cut off. A rebuild under way (negative floor) could
-- miss what is cut off here: its floor goes, and it starts over. Popping the entries would
-- cost twice as much: their members and scores would all come to this script.
-- Returns the floor where it has risen.
local function trim(key, floor, size)
  local cut, risen = size - low, nil
  if floor then call('ZREM', key, '~floor') end
  if floor and floor >= 0 then
    local last = call('ZRANGE', key, cut - 1, cut - 1, 'WITHSCORES')
    risen = math.max(floor, tonumber(last[2]), 1)
  end
  call('ZREMRANGEBYRANK', key, 0, cut - 1)
  if risen then call('ZADD', key, risen, '~floor') end
  return risen
end

-- Entries at or below the floor are found by reading past it.
local function above(floor, entries)
  local kept = {}
  for i = 1, #entries, 2 do
    if tonumber(entries[i]) > floor then
      kept[#kept + 1] = entries[i]
      kept[#kept + 1] = entries[i + 1]
    end
  end
  return kept
end

local function floorOf(key)
  local floor = call('ZSCORE', key, '~floor')
  return floor and tonumber(floor)
end

-- Nothing in a timeline stands below its floor, except drops of the time 0 below a floor of 1. So where an entry of a
-- later time stands below the drops, the floor does, too. To count costs half of what the floor itself does, a number
-- that Redis would print and Lua read.
local function add(key, entries, lowest)
  if active or call('ZCOUNT', key, '1', '(' .. lowest) == 0 then
    local floor = floorOf(key)
    if active and not floor then return 0 end
    if floor and floor > 0 then entries = above(floor, entries) end
  end
  if #entries == 0 then return 0 end
  local added = call('ZADD', key, 'LT', unpack(entries))
  if added == 0 then return 0 end
  local size = call('ZCARD', key)
  if ttl > 0 and size == added then call('PEXPIRE', key, ttl) end
  if size > cap then
    local floor = floorOf(key)
    if floor then size = size - 1 end
    local risen = size > cap and trim(key, floor, size)
    if risen and tonumber(lowest) <= risen then return 0 end
  end
  return added
end

local total, at = 0, 7
while at <= #ARGV do
  local rest, last = ARGV[at], at + 1 + 2 * tonumber(ARGV[at + 1])
  local entries, lowest = {}, '+inf'
  for i = at + 2, last, 2 do
    entries[#entries + 1] = ARGV[i]
    entries[#entries + 1] = ARGV[i + 1]
    if tonumber(ARGV[i]) < tonumber(lowest) then lowest = ARGV[i] end
  end
  for token in string.gmatch(rest, '[^,]+') do total = total + add(prefix .. token, entries, lowest) end
  at = last + 1
end
return total
