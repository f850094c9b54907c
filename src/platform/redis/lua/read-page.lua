-- Reads of each timeline the entries next to a position, the floor, and which of them are tombstoned, at one instant.
--
-- KEYS     the timelines; then the tombstones if ARGV[1] is 1
-- ARGV[1]  without 1 nothing is said about tombstones, and no page is answered
-- ARGV[2]  a key nobody has read for longer than this, ms, is not vouched for: deletions it has missed may be forgotten
-- ARGV     then of each timeline:
--     [1]  "older" or "newer" than the position
--     [2]  how many
--     [3]  time to live a read gives the key, ms; 0: leave it
--     [4]  drops of a page, to answer one where it is complete and nothing of it is hidden; 0: answer entries
--     [5]  drops older than this are hidden, ms
--     [6]  score of the position; "" reads from the end (older: the newest; newer: the oldest)
--     [7]  drop id of the position, which need not be held
-- returns  of each timeline
--          the page: 1 if more follow, score (double) and length of its newest and its oldest id, `repeated string 1`;
--          or { floor or "", "1" if none is tombstoned, id, score, id, score, ... } in ascending order of (score, bytes)
local call = redis.call
local timelines = ARGV[1] == '1' and #KEYS - 1 or #KEYS
local tombstones = KEYS[timelines + 1]

-- Lua compares strings by the locale, Redis members by their bytes.
local function less(a, b)
  local n = math.min(#a, #b)
  for i = 1, n do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Number of entries before (score, id); ties are searched by halving.
local function entries_before(key, score, id)
  local low = call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if less(call('ZRANGE', key, middle, middle)[1], id) then low = middle + 1 else high = middle end
  end
  return low
end

-- The time to live is renewed by reads and by nothing else: what is left of it says when the last one was. A renewal
-- a moment after another is not worth a write to replicas and disk.
local function renew(key, ttl)
  local left = call('PTTL', key)
  if left >= 0 and ttl - left > tonumber(ARGV[2]) then call('ZREM', key, '~floor') end
  if left == -1 or math.abs(ttl - left) > ttl / 100 then call('PEXPIRE', key, ttl) end
end

local function untouched(ids)
  if not tombstones then return false end
  local scores = call('ZMSCORE', tombstones, '~floor', unpack(ids))
  if not scores[1] or tonumber(scores[1]) < 0 then return false end
  for i = 2, #scores do
    if scores[i] then return false end
  end
  return true
end

-- The tag and the length of a text. Ids have at most 128 bytes; a length from 128 on takes two bytes of a varint.
local function tag(length)
  return length < 128 and string.char(10, length) or string.char(10, length % 128 + 128, 1)
end

-- Takes ids newest first.
local function encode(ids, from, to)
  local length = #ids[from]
  local parts = {}
  for i = from, to do
    if #ids[i] ~= length then length = nil break end
  end
  if length then return tag(length) .. table.concat(ids, tag(length), from, to) end
  for i = from, to do parts[#parts + 1] = tag(#ids[i]) .. ids[i] end
  return table.concat(parts)
end

-- The newest drops before `first` entries, newest first.
local function page(key, first, size, since)
  local skipped = first and call('ZCARD', key) - first or 0
  local ids = call('ZRANGE', key, skipped, skipped + size + 1, 'REV')
  for i = #ids, 1, -1 do
    if ids[i] == '~floor' then table.remove(ids, i) end
  end
  local more = #ids > size
  local last = math.min(#ids, size + 1)
  if last == 0 then return nil end
  local scores = call('ZMSCORE', key, '~floor', ids[1], ids[math.min(last, size)], ids[last])
  local floor, oldest = tonumber(scores[1] or -1), tonumber(scores[4])
  if floor < 0 or (not more and floor > 0) then return nil end
  if (oldest <= floor and floor > 0) or oldest < since then return nil end
  ids[last + 1] = nil
  if not untouched(ids) then return nil end
  local shown = math.min(last, size)
  local header = struct.pack('>BdBdB', more and 1 or 0, tonumber(scores[2]), #ids[1], tonumber(scores[3]), #ids[shown])
  return header .. encode(ids, 1, shown)
end

local function entries(key, first, older, count)
  -- One more than asked, since the floor may be among them. Ranks below 0 count from the newest.
  local from, to = first or 0, (first or 0) + count
  if older and first then from, to = math.max(0, first - count - 1), first - 1 end
  if older and not first then from, to = -count - 1, -1 end
  local held = to >= from and call('ZRANGE', key, from, to, 'WITHSCORES') or {}
  local result, ids = { call('ZSCORE', key, '~floor') or '', '' }, {}
  for i = 1, #held, 2 do
    if held[i] ~= '~floor' then
      ids[#ids + 1] = held[i]
      result[#result + 1] = held[i]
      result[#result + 1] = held[i + 1]
    end
  end
  if untouched(ids) then result[2] = '1' end
  return result
end

local function read(key, direction, count, ttl, size, since, score, id)
  if tonumber(ttl) > 0 then renew(key, tonumber(ttl)) end
  local older, first = direction == 'older', nil
  if score ~= '' then
    first = entries_before(key, score, id)
    if not older and call('ZRANGE', key, first, first)[1] == id then first = first + 1 end
  end
  local answer = tombstones and tonumber(size) > 0 and page(key, first, tonumber(size), tonumber(since))
  return answer or entries(key, first, older, tonumber(count))
end

local answers = {}
for i = 1, timelines do answers[i] = read(KEYS[i], unpack(ARGV, 7 * i - 4, 7 * i + 2)) end
return answers
