-- Reads of each timeline the entries next to a position, the floor, and whether one of them is tombstoned, at one instant.
--
-- KEYS     none; in a Redis Cluster one of the timelines, which are all on its node
-- ARGV[1]  "1": the tombstones are on this server; else they are not read, and a page may show deleted drops
-- ARGV[2]  maximum idle time, ms: a key that was not read for longer may lack deletions, and counts as incomplete
-- ARGV[3]  how many entries more are read in place of an encoded page, if there are reposts
-- ARGV[4]  "1": a home beside which no copy of whom its user follows stands is not complete; else one that has a copy
-- ARGV     then of each timeline:
--     [1]  its key
--     [2]  "older" or "newer" than the position
--     [3]  how many
--     [4]  time to live a read gives the key, ms; 0: leave it
--     [5]  score of the position; "" reads from the end (older: the newest; newer: the oldest)
--     [6]  drop id of the position, which need not be held
--     [7]  the set of authors whose timelines are merged into this one; "": none
--     [8]  drops of the newest page, to answer it encoded where it is complete, nothing of it is hidden, nothing is
--          merged into it and it has no reposts; 0: answer entries
--     [9]  drops older than this are hidden, ms
--     [10] "1": entries are judged by standings, and none are answered encoded
-- returns  of each timeline the page: a byte, 1 if more follow, its drops as `repeated string 1`, and their scores as
--          text, joined by ","; or as JSON [floor or "", "1" if none is tombstoned, authors, hides, "1" if the home is
--          renewed or a mute ends soon, bylines, id, score, ...] in ascending order of (score, bytes). authors: joined by ","; "?" if the
--          set is not known. hides: "1" if authors are asked for and the home's user hides somebody. bylines: of the
--          reposts among the entries, by drop, in a list of all; "" if there are none at all
local call = redis.call
-- As in page-cache.ts.
local MAX_AGE_MS = 60000
local tombstones = ARGV[1] == '1' and TOMBSTONES

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

-- A server that takes no writes for now answers all the same. A replica does not: the client has to find the master.
local function write(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and string.find(reply.err, 'READONLY', 1, true) then call(...) end
end

local function expire(key, ttl) write('PEXPIRE', key, ttl) end

-- The time to live is renewed by reads and by nothing else: what is left of it says when the last one was, unless that
-- one gave the key a longer time than this one does. A renewal a moment after another is not worth a write to replicas
-- and disk. Returns true if the key was idle for too long.
local function renew(key, ttl)
  local left = call('PTTL', key)
  local is_idle = left >= 0 and ttl - left > tonumber(ARGV[2])
  local is_doubtful = is_idle or left - ttl > ttl / 100
  if is_doubtful then write('ZREM', key, FLOOR) end
  if left == -1 or math.abs(ttl - left) > ttl / 100 then
    expire(key, ttl)
    expire(BYLINES .. key .. '}', ttl)
    expire(STANDING_BYLINES .. key .. '}', ttl)
    expire(FOLLOWS .. key .. '}', ttl)
  end
  return is_doubtful
end

local function untouched(ids)
  if not tombstones then return false end
  local scores = call('ZMSCORE', tombstones, FLOOR, unpack(ids))
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
local function encode(ids, to)
  local length = #ids[1]
  local parts = {}
  for i = 1, to do
    if #ids[i] ~= length then length = nil break end
  end
  if length then return tag(length) .. table.concat(ids, tag(length), 1, to) end
  for i = 1, to do parts[i] = tag(#ids[i]) .. ids[i] end
  return table.concat(parts)
end

-- The newest drops; nil where they are no whole page.
local function page_of(key, size, since)
  local held = call('ZRANGE', key, 0, size + 1, 'REV', 'WITHSCORES')
  local ids, scores = {}, {}
  for i = 1, #held, 2 do
    if held[i] ~= FLOOR then
      ids[#ids + 1] = held[i]
      scores[#scores + 1] = held[i + 1]
    end
  end
  local last = math.min(#ids, size + 1)
  if last == 0 then return nil end
  ids[last + 1] = nil
  local shown = math.min(last, size)
  local floor, oldest, more = tonumber(call('ZSCORE', key, FLOOR) or -1), tonumber(scores[last]), last > size
  if floor < 0 or (not more and floor > 0) or (oldest <= floor and floor > 0) or oldest < since then return nil end
  if tombstones and not untouched(ids) then return nil end
  return (more and '\1' or '\0') .. encode(ids, shown) .. table.concat(scores, ',', 1, shown)
end

-- Ids and scores in ascending order.
local function entries_of(key, first, older, count)
  -- One more than asked, since the floor may be among them. Ranks below 0 count from the newest.
  local from, to = first or 0, (first or 0) + count
  if older and first then from, to = math.max(0, first - count - 1), first - 1 end
  if older and not first then from, to = -count - 1, -1 end
  local held = to >= from and call('ZRANGE', key, from, to, 'WITHSCORES') or {}
  local ids, scores, n = {}, {}, 0
  for i = 1, #held, 2 do
    if held[i] ~= FLOOR then
      n = n + 1
      ids[n], scores[n] = held[i], held[i + 1]
    end
  end
  if #ids > count then
    local farthest = older and 1 or #ids
    table.remove(ids, farthest)
    table.remove(scores, farthest)
  end
  return ids, scores
end

-- Number of entries before the position; nil reads from the end.
local function first_of(key, older, score, id)
  if score == '' then return nil end
  local first = entries_before(key, score, id)
  if not older and call('ZRANGE', key, first, first)[1] == id then return first + 1 end
  return first
end

local function authors_of(pulls, ttl)
  local complete, authors = false, {}
  for _, member in ipairs(call('SMEMBERS', pulls)) do
    if member == COMPLETE then complete = true elseif string.sub(member, 1, 1) ~= '~' then
      authors[#authors + 1] = member
    end
  end
  if not complete then return '?' end
  if ttl > 0 and math.abs(ttl - call('PTTL', pulls)) > ttl / 100 then expire(pulls, ttl) end
  return table.concat(authors, ',')
end

local function is_home(key) return string.sub(key, 1, #HOME) == HOME end

-- Number of bylines of reposts that are kept beside a home or an author's timeline; of all drops beside a list.
local function reposts_of(key)
  local are_kept = is_home(key) or string.sub(key, 1, #AUTHOR) == AUTHOR or string.sub(key, 1, #LIST) == LIST
  return are_kept and call('HLEN', BYLINES .. key .. '}') or 0
end

-- Number of drops up to which passing through a list for each of them costs less than reading all of it.
local FEW = 64

-- Redis keeps up to 512 short fields as a list by default, and passes through it for each field that is asked for. More of
-- them, or one of more than 64 bytes, make a table, which answers in the same time whatever its size.
local function bylines_of(key, ids)
  local bylines, hash = {}, BYLINES .. key .. '}'
  if #ids == 0 then return bylines end
  if #ids <= FEW or call('OBJECT', 'ENCODING', hash) == 'hashtable' then
    for i, byline in ipairs(call('HMGET', hash, unpack(ids))) do bylines[ids[i]] = byline or nil end
    return bylines
  end
  local asked, held = {}, call('HGETALL', hash)
  for _, id in ipairs(ids) do asked[id] = true end
  for i = 1, #held, 2 do
    if asked[held[i]] then bylines[held[i]] = held[i + 1] end
  end
  return bylines
end

-- A home whose user may hide somebody that this server does not know of is not complete: a version that knew no hidden
-- users wrote it, or the hash is lost. Neither is one that has other replies than it should: the setting was changed,
-- or the copy of whom its user follows is lost.
local function is_judged(key)
  if not is_home(key) then return true end
  local has_copy = call('HGET', FOLLOWS .. key .. '}', STATE) == 'complete'
  if has_copy ~= (ARGV[4] == '1') then return false end
  return call('HGET', HIDDEN .. key .. '}', STATE) == 'complete'
end

-- True if the hash of a home expires, since a mute ends, before a cached page does.
local function ends_soon(key)
  local left = call('PTTL', HIDDEN .. key .. '}')
  return left >= 0 and left < MAX_AGE_MS
end

-- A change that somebody else made renews a home when that is due: see change-hidden.lua. What is read before is not
-- cached, nor is what is read while a mute ends soon. Returns "soon" or "now", nil if there is no reason.
local function renewal_of(key)
  if not is_home(key) then return nil end
  local renewal = RENEWAL .. key .. '}'
  local due = call('GET', renewal)
  if not due or due == '0' then return ends_soon(key) and 'soon' or nil end
  local time = call('TIME')
  if time[1] * 1000 + time[2] / 1000 < tonumber(due) then return 'soon' end
  write('ZREM', key, FLOOR)
  write('SET', renewal, '0', 'PX', 1200)
  return 'now'
end

local function read(key, direction, count, ttl, score, id, pulls, size, since, is_judged_later)
  local older = direction == 'older'
  count, ttl, size = tonumber(count), tonumber(ttl), tonumber(size)
  local is_doubtful = ttl > 0 and renew(key, ttl)
  local authors = pulls == '' and '' or authors_of(pulls, ttl)
  local renewal = renewal_of(key)
  local is_whole = not is_doubtful and renewal ~= 'now' and is_judged(key)
  local reposts = reposts_of(key)
  local is_plain = authors == '' and reposts == 0 and is_judged_later ~= '1'
  local may_encode = is_whole and not renewal and size > 0 and is_plain
  local encoded = may_encode and page_of(key, size, tonumber(since))
  if encoded then return encoded end
  if reposts > 0 and size > 0 then count = count + tonumber(ARGV[3]) end
  local ids, scores = entries_of(key, first_of(key, older, score, id), older, count)
  -- One of its fields is its state.
  local hides = authors ~= '' and call('HLEN', HIDDEN .. key .. '}') > 1 and '1' or ''
  local floor, alive = is_whole and call('ZSCORE', key, FLOOR) or '', untouched(ids) and '1' or ''
  local bylines = reposts > 0 and bylines_of(key, ids) or ''
  local answer = { floor, alive, authors, hides, renewal and '1' or '', bylines }
  for i = 1, #ids do answer[2 * i + 5], answer[2 * i + 6] = ids[i], scores[i] end
  return cjson.encode(answer)
end

local answers = {}
for i = 5, #ARGV, 10 do answers[#answers + 1] = read(unpack(ARGV, i, i + 9)) end
return answers
