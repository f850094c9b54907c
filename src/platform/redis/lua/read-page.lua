-- Reads of each timeline the entries next to a position, the floor, and which of them are tombstoned, at one instant.
--
-- The timelines of pulled authors are merged into a home, if the set of those whom its owner follows is named.
--
-- KEYS     the timelines; then the tombstones if ARGV[1] is 1
-- ARGV[1]  without 1 nothing is said about tombstones, and no page is answered
-- ARGV[2]  a key nobody has read for longer than this, ms, is not vouched for: deletions it has missed may be forgotten
-- ARGV[3]  the registry of pulled authors
-- ARGV[4]  prefix of authors' timelines; "": authors are named but not merged
-- ARGV     then of each timeline:
--     [1]  "older" or "newer" than the position
--     [2]  how many
--     [3]  time to live a read gives the key, ms; 0: leave it
--     [4]  drops of a page, to answer one where it is complete and nothing of it is hidden; 0: answer entries
--     [5]  drops older than this are hidden, ms
--     [6]  score of the position; "" reads from the end (older: the newest; newer: the oldest)
--     [7]  drop id of the position, which need not be held
--     [8]  the set of authors to merge; "": none
-- returns  of each timeline
--          the page: 1 if more follow, score (double) and length of its newest and its oldest id, `repeated string 1`;
--          or { floor or "", "1" if none is tombstoned, pulled, id, score, id, score, ... } in ascending order of
--          (score, bytes). pulled: "?" where the set is not known; else the authors, "/", and what must be rebuilt
--          ("~home" or authors), each joined by ","; "" where nothing is merged
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

-- A server that takes no writes for now answers all the same. A replica does not: the client has to find the master.
local function expire(key, ttl)
  local reply = redis.pcall('PEXPIRE', key, ttl)
  if type(reply) == 'table' and string.find(reply.err, 'READONLY', 1, true) then call('PEXPIRE', key, ttl) end
end

-- The time to live is renewed by reads and by nothing else: what is left of it says when the last one was, unless that
-- one gave the key a longer time than this one does. A renewal a moment after another is not worth a write to replicas
-- and disk.
local function renew(key, ttl)
  local left = call('PTTL', key)
  local is_idle = left >= 0 and ttl - left > tonumber(ARGV[2])
  if is_idle or left - ttl > ttl / 100 then call('ZREM', key, '~floor') end
  if left == -1 or math.abs(ttl - left) > ttl / 100 then expire(key, ttl) end
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

-- `scores`: of the newest drop, the oldest of the page, and the oldest given.
local function page(ids, size, floor, scores, since)
  local more = #ids > size
  local oldest = tonumber(scores[3])
  if floor < 0 or (not more and floor > 0) then return nil end
  if (oldest <= floor and floor > 0) or oldest < since then return nil end
  if not untouched(ids) then return nil end
  local shown = math.min(#ids, size)
  local header = struct.pack('>BdBdB', more and 1 or 0, tonumber(scores[1]), #ids[1], tonumber(scores[2]), #ids[shown])
  return header .. encode(ids, 1, shown)
end

-- The newest drops before `first` entries, newest first.
local function stored_page(key, first, size, since)
  local skipped = first and call('ZCARD', key) - first or 0
  local ids = call('ZRANGE', key, skipped, skipped + size + 1, 'REV')
  for i = #ids, 1, -1 do
    if ids[i] == '~floor' then table.remove(ids, i) end
  end
  local last = math.min(#ids, size + 1)
  if last == 0 then return nil end
  ids[last + 1] = nil
  local scores = call('ZMSCORE', key, '~floor', ids[1], ids[math.min(last, size)], ids[last])
  return page(ids, size, tonumber(table.remove(scores, 1) or -1), scores, since)
end

-- Ids and scores in ascending order. `bound`: none beyond this score, further from the position, are wanted.
local function stored_entries(key, first, older, count, bound)
  -- One more than asked, since the floor may be among them. Ranks below 0 count from the newest.
  local from, to = first or 0, (first or 0) + count
  if older and first then from, to = math.max(0, first - count - 1), first - 1 end
  if older and not first then from, to = -count - 1, -1 end
  if bound and older and first then
    from = math.max(from, call('ZCOUNT', key, '-inf', '(' .. bound))
  elseif bound and older then
    local above = call('ZCOUNT', key, bound, '+inf')
    from, to = -math.min(count + 1, above), above > 0 and -1 or -count - 2
  elseif bound then
    to = math.min(to, call('ZCOUNT', key, '-inf', bound) - 1)
  end
  local held = to >= from and call('ZRANGE', key, from, to, 'WITHSCORES') or {}
  local ids, scores = {}, {}
  for i = 1, #held, 2 do
    if held[i] ~= '~floor' then
      ids[#ids + 1] = held[i]
      scores[#scores + 1] = held[i + 1]
    end
  end
  return ids, scores
end

local function answer(floor, pulled, ids, scores)
  local result = { floor, untouched(ids) and '1' or '', pulled }
  for i = 1, #ids do
    result[#result + 1] = ids[i]
    result[#result + 1] = scores[i]
  end
  return result
end

-- Number of entries before the position; nil reads from the end.
local function first_of(key, older, score, id)
  if score == '' then return nil end
  local first = entries_before(key, score, id)
  if not older and call('ZRANGE', key, first, first)[1] == id then return first + 1 end
  return first
end

-- States in which homes get all drops of the author (contracts/pulled.ts): the author's timeline is merged where it
-- exists. Its floor does not count, and reads do not renew it.
local BESIDE = { leaving = true, tiering = true, tiered = true }

-- The authors to merge, or nil where they are not known; and which of them homes are complete without.
local function authors_of(pulls, ttl)
  local complete, authors = false, {}
  for _, member in ipairs(call('SMEMBERS', pulls)) do
    if member == '~complete' then complete = true elseif string.sub(member, 1, 1) ~= '~' then
      authors[#authors + 1] = member
    end
  end
  if not complete then return nil end
  if ttl > 0 and math.abs(ttl - call('PTTL', pulls)) > ttl / 100 then expire(pulls, ttl) end
  -- A registry that was lost has no version, and is written anew with the same authors.
  if #authors == 0 or not tombstones or not call('HGET', ARGV[3], '~version') then return authors, {} end
  local pulled, beside = {}, {}
  for from = 1, #authors, 5000 do
    local some, keys = { unpack(authors, from, math.min(#authors, from + 4999)) }, {}
    for i, state in ipairs(call('HMGET', ARGV[3], unpack(some))) do
      local author, name = some[i], state and string.match(state, '^%a+') or 'pushed'
      beside[author] = BESIDE[name]
      if BESIDE[name] and ARGV[4] ~= '' then
        keys[#keys + 1] = ARGV[4] .. author
      elseif name ~= 'pushed' then
        pulled[#pulled + 1] = author
      end
    end
    -- Seldom is a drop of any of them under way.
    if #keys > 0 and call('EXISTS', unpack(keys)) > 0 then
      for _, key in ipairs(keys) do
        if call('EXISTS', key) == 1 then pulled[#pulled + 1] = string.sub(key, #ARGV[4] + 1) end
      end
    end
  end
  return pulled, beside
end

-- Entries of a home and of its authors, those nearest to the position first; an id has its smallest score.
local function merge(key, authors, beside, older, count, ttl, score, id)
  local found, known, floor, missing, bound = {}, {}, 0, {}, nil
  local function before(a, b)
    if a.time ~= b.time then return (a.time < b.time) ~= older end
    return a.id ~= b.id and less(a.id, b.id) ~= older
  end
  -- False where the entry is too far from the position, and with it all that are further.
  local function insert(entry)
    local low, high = 1, #found + 1
    if high > 1 and before(found[high - 1], entry) then low = high end
    if low > count then return false end
    while low < high do
      local middle = math.floor((low + high) / 2)
      if before(found[middle], entry) then low = middle + 1 else high = middle end
    end
    table.insert(found, low, entry)
    found[count + 1] = nil
    bound = found[count] and found[count].score
    return true
  end
  local function forget(entry)
    for i = #found, 1, -1 do
      if found[i] == entry then table.remove(found, i) end
    end
  end
  local function take(name, timeline)
    if not beside[name] then
      if timeline ~= key and ttl > 0 then renew(timeline, ttl) end
      local own = tonumber(call('ZSCORE', timeline, '~floor') or -1)
      if own < 0 then missing[#missing + 1] = name end
      floor = math.max(floor, own)
    end
    local ids, scores = stored_entries(timeline, first_of(timeline, older, score, id), older, count, bound)
    local from, to, step = 1, #ids, 1
    if older then from, to, step = #ids, 1, -1 end
    for i = from, to, step do
      local entry, time = known[ids[i]], tonumber(scores[i])
      if not entry or time < entry.time then
        if entry then forget(entry) end
        known[ids[i]] = { id = ids[i], score = scores[i], time = time }
        if not insert(known[ids[i]]) then break end
      end
    end
  end
  take('~home', key)
  for _, author in ipairs(authors) do take(author, ARGV[4] .. author) end
  return found, #missing == 0 and floor or nil, missing
end

local function merged_page(found, floor, size, since)
  local last = math.min(#found, size + 1)
  if last == 0 then return nil end
  local ids = {}
  for i = 1, last do ids[i] = found[i].id end
  return page(ids, size, floor, { found[1].score, found[math.min(last, size)].score, found[last].score }, since)
end

local function merged(key, authors, beside, older, count, ttl, size, since, score, id)
  local found, floor, missing = merge(key, authors, beside, older, count, ttl, score, id)
  local encoded = floor and older and size > 0 and merged_page(found, floor, size, since)
  if encoded then return encoded end
  local ids, scores = {}, {}
  for i, entry in ipairs(found) do
    local at = older and #found + 1 - i or i
    ids[at], scores[at] = entry.id, entry.score
  end
  return answer(floor and tostring(floor) or '', table.concat(authors, ',') .. '/' .. table.concat(missing, ','), ids, scores)
end

local function read(key, direction, count, ttl, size, since, score, id, pulls)
  count, ttl, size, since = tonumber(count), tonumber(ttl), tonumber(size), tonumber(since)
  if ttl > 0 then renew(key, ttl) end
  local older, pulled = direction == 'older', ''
  if pulls ~= '' then
    local authors, beside = authors_of(pulls, ttl)
    if authors and #authors > 0 and tombstones and ARGV[4] ~= '' then
      return merged(key, authors, beside, older, count, ttl, size, since, score, id)
    end
    pulled = not authors and '?' or #authors > 0 and table.concat(authors, ',') .. '/' or ''
  end
  local first = first_of(key, older, score, id)
  local encoded = tombstones and size > 0 and pulled == '' and stored_page(key, first, size, since)
  if encoded then return encoded end
  return answer(call('ZSCORE', key, '~floor') or '', pulled, stored_entries(key, first, older, count))
end

local answers = {}
for i = 1, timelines do answers[i] = read(KEYS[i], unpack(ARGV, 8 * i - 3, 8 * i + 4)) end
return answers
