-- Reads the entries next to a position, the floor, and which of them are tombstoned, at one instant.
--
-- KEYS[1]  the timeline
-- KEYS[2]  the tombstones; without it nothing is said about them, and no page is answered
-- ARGV[1]  "older" or "newer" than the position
-- ARGV[2]  how many
-- ARGV[3]  time to live a read gives the key, ms; 0: leave it
-- ARGV[4]  a key nobody has read for longer than this, ms, is not vouched for: deletions it has missed may be forgotten
-- ARGV[5]  score of the position; "" reads from the end (older: the newest; newer: the oldest)
-- ARGV[6]  drop id of the position, which need not be held
-- ARGV[7]  drops of a page, to answer one where it is complete and nothing of it is hidden; 0: answer entries
-- ARGV[8]  drops older than this are hidden, ms
-- returns  the page: 1 if more follow, score (double) and length of its newest and its oldest id, `repeated string 1`;
--          or { floor or "", "1" if none is tombstoned, id, score, id, score, ... } in ascending order of (score, bytes)
local key, tombstones, older = KEYS[1], KEYS[2], ARGV[1] == 'older'
local count, size = tonumber(ARGV[2]), tonumber(ARGV[7])

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

-- The time to live is renewed by reads and by nothing else: what is left of it says when the last one was. A renewal
-- a moment after another is not worth a write to replicas and disk.
local ttl = tonumber(ARGV[3])
if ttl > 0 then
  local left = redis.call('PTTL', key)
  if left >= 0 and ttl - left > tonumber(ARGV[4]) then redis.call('ZREM', key, '~floor') end
  if left == -1 or math.abs(ttl - left) > ttl / 100 then redis.call('PEXPIRE', key, ttl) end
end
local floor = redis.call('ZSCORE', key, '~floor')

local first
if ARGV[5] ~= '' then
  first = entries_before(ARGV[5], ARGV[6])
  if not older and redis.call('ZRANGE', key, first, first)[1] == ARGV[6] then first = first + 1 end
end

-- One more than asked, since the floor may be among them. Ranks below 0 count from the newest.
local function ranks(n)
  if not older then return first or 0, (first or 0) + n end
  if not first then return -n - 1, -1 end
  return math.max(0, first - n - 1), first - 1
end

local function untouched(ids)
  if not tombstones then return false end
  local scores = redis.call('ZMSCORE', tombstones, '~floor', unpack(ids))
  if not scores[1] or tonumber(scores[1]) < 0 then return false end
  for i = 2, #scores do
    if scores[i] then return false end
  end
  return true
end

-- Ids have at most 128 bytes; a length from 128 on takes two bytes of a varint.
local function encode(ids, from, to)
  local parts = {}
  for i = to, from, -1 do
    local length = #ids[i]
    parts[#parts + 1] = length < 128 and string.char(10, length) or string.char(10, length % 128 + 128, 1)
    parts[#parts + 1] = ids[i]
  end
  return table.concat(parts)
end

local function page()
  if not floor or tonumber(floor) < 0 then return nil end
  local from, to = ranks(size + 1)
  local ids = to >= from and redis.call('ZRANGE', key, from, to) or {}
  for i = #ids, 1, -1 do
    if ids[i] == '~floor' then table.remove(ids, i) end
  end
  if #ids > size + 1 then table.remove(ids, 1) end
  local more = #ids > size
  if #ids == 0 or (not more and tonumber(floor) > 0) then return nil end
  local oldest = tonumber(redis.call('ZSCORE', key, ids[1]))
  if (oldest <= tonumber(floor) and tonumber(floor) > 0) or oldest < tonumber(ARGV[8]) then return nil end
  if not untouched(ids) then return nil end
  local start = more and 2 or 1
  if more then oldest = tonumber(redis.call('ZSCORE', key, ids[2])) end
  local newest = tonumber(redis.call('ZSCORE', key, ids[#ids]))
  local header = struct.pack('>BdBdB', more and 1 or 0, newest, #ids[#ids], oldest, #ids[start])
  return header .. encode(ids, start, #ids)
end

local answer = size > 0 and tombstones and page()
if answer then return answer end

local from, to = ranks(count)
local held = to >= from and redis.call('ZRANGE', key, from, to, 'WITHSCORES') or {}
local result, ids = { floor or '', '' }, {}
for i = 1, #held, 2 do
  if held[i] ~= '~floor' then
    ids[#ids + 1] = held[i]
    result[#result + 1] = held[i]
    result[#result + 1] = held[i + 1]
  end
end
if untouched(ids) then result[2] = '1' end
return result
