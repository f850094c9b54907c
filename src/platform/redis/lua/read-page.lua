-- Reads the entries next to a position, and the floor, at one instant.
--
-- KEYS[1]  the timeline
-- ARGV[1]  "older" or "newer" than the position
-- ARGV[2]  how many
-- ARGV[3]  time to live the read gives the key, ms; 0: leave it
-- ARGV[4]  a key nobody has read for longer than this, ms, is not vouched for: deletions it has missed may be forgotten
-- ARGV[5]  score of the position; "" reads from the end (older: the newest; newer: the oldest)
-- ARGV[6]  drop id of the position, which need not be held
-- returns  { floor or "", id, score, id, score, ... } in ascending order of (score, bytes of id)
local key, older, count = KEYS[1], ARGV[1] == 'older', tonumber(ARGV[2])

-- Lua compares strings by the locale, Redis members by their bytes.
local function less(a, b)
  local n = math.min(#a, #b)
  for i = 1, n do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- How many entries come before (score, id); ties are searched by halving.
local function entries_before(score, id)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if less(redis.call('ZRANGE', key, middle, middle)[1], id) then low = middle + 1 else high = middle end
  end
  return low
end

local first
if ARGV[5] == '' then
  first = older and redis.call('ZCARD', key) or 0
else
  first = entries_before(ARGV[5], ARGV[6])
  if not older and redis.call('ZRANGE', key, first, first)[1] == ARGV[6] then first = first + 1 end
end

-- One more than asked, since the floor may be among them.
local from, to
if older then
  from, to = math.max(0, first - count - 1), first - 1
else
  from, to = first, first + count
end
local held = to >= from and redis.call('ZRANGE', key, from, to, 'WITHSCORES') or {}

-- The time to live is renewed by reads and by nothing else: what is left of it says when the last one was.
local ttl = tonumber(ARGV[3])
if ttl > 0 then
  local left = redis.call('PTTL', key)
  if left >= 0 and ttl - left > tonumber(ARGV[4]) then redis.call('ZREM', key, '~floor') end
end
local floor = redis.call('ZSCORE', key, '~floor')
local result = { floor or '' }
for i = 1, #held, 2 do
  if held[i] ~= '~floor' then
    result[#result + 1] = held[i]
    result[#result + 1] = held[i + 1]
  end
end
if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
return result
