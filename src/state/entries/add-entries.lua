-- Adds drops to many timelines in one call: groups of timelines, each with drops of its own.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since what it
--          carries may have been overtaken by a deletion
-- ARGV[2]  cap on drops per timeline
-- ARGV[3]  size a timeline is trimmed down to once it passes the cap
-- ARGV[4]  time to live of a key that is created here, ms; 0: none
-- ARGV[5]  "1": only if a ~floor stands
-- ARGV[6]  "homes": drops that a home's user does not see are left out, replies that the home does not show, too, and the
--          bylines of reposts are kept, and those that only suspensions judge; "new homes": the same, and the users of
--          homes that do not exist are known not to be erased; "all", "reposts": the bylines of these are kept, of replies
--          as of reposts; "remote 500": the same as "all", and the drops are remote: a timeline holds at most 500
-- ARGV[7]  prefix of the keys
-- ARGV[8+] groups: the rest of each key, joined by ",", how many drops, and
--          score, drop id, byline, score, drop id, byline, ...
-- returns  how many entries are new and stand above the floor; if a Redis Cluster has homes that do not exist, and that
--          were not made, a list of this number and their tokens, joined by ","
local call = redis.call
local time = call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the write came after its deadline')
end
local cap, low, ttl = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local active, kind, prefix = ARGV[5] == '1', ARGV[6], ARGV[7]
local are_homes = kind == 'homes' or kind == 'new homes'
local remote_cap = tonumber(string.match(kind, '^remote (%d+)$'))

-- Local, global and the timelines of authors may hold this multiple of the cap while they are rebuilt: each trim would let
-- the rebuild start over. Its end cuts off the rest.
local rebuilding = 10

-- The floor rises to the last entry cut off. A rebuild under way (negative floor) could
-- miss what is cut off here: its floor goes, and it starts over. Popping the entries would
-- cost twice as much: their members and scores would all come to this script.
-- Returns the floor if it has risen.
local function trim(key, floor, size)
  local cut, risen = size - low, nil
  if floor then call('ZREM', key, FLOOR) end
  if floor and floor >= 0 then
    local last = call('ZRANGE', key, cut - 1, cut - 1, 'WITHSCORES')
    risen = math.max(floor, tonumber(last[2]), 1)
  end
  call('ZREMRANGEBYRANK', key, 0, cut - 1)
  if risen then call('ZADD', key, risen, FLOOR) end
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
  local floor = call('ZSCORE', key, FLOOR)
  return floor and tonumber(floor)
end

-- A list of followers may have been read before one of them was erased: their home is not made again. Erased users are in
-- another slot of a cluster: the caller asks for them, and calls again.
local unmade = {}
local function may_make(key)
  if kind ~= 'homes' then return true end
  local token = string.sub(key, #prefix + 1)
  if #KEYS == 0 then return not call('ZSCORE', ERASED, token) end
  unmade[#unmade + 1] = token
  return false
end

-- Remote drops have a floor of their own. It is not valid while the timeline is rebuilt.
local function above_remote_floor(key, entries)
  local floor = (floorOf(key) or -1) >= 0 and floorOf(REMOTE .. key .. '}')
  return floor and floor > 0 and above(floor, entries) or entries
end

-- A set beside the timeline counts its remote drops. Drops that have left the timeline leave this set once it is full.
-- A rebuild adds to the set before it adds to the timeline, so nothing leaves the set while the mark of a rebuild stands.
-- A rebuild starts over if too many remote drops come meanwhile.
local function bound_remote(key, entries)
  local floor, set = floorOf(key), REMOTE .. key .. '}'
  if not floor then return end
  call('ZADD', set, 'LT', unpack(entries))
  local size = call('ZCARD', set)
  if floor < 0 and size > 2 * cap then
    call('DEL', set)
    call('ZREM', key, FLOOR)
  end
  if floor < 0 or size <= remote_cap then return end
  local risen = floorOf(set)
  call('ZINTERSTORE', set, 2, set, key, 'WEIGHTS', 0, 1)
  call('ZREM', set, FLOOR)
  local held = call('ZCARD', set)
  if held > remote_cap then
    local cut = call('ZPOPMIN', set, held - math.ceil(remote_cap * low / cap))
    for i = 1, #cut, 2 do call('ZREM', key, cut[i]) end
    risen = math.max(risen or 0, tonumber(cut[#cut]), 1)
  end
  if risen then call('ZADD', set, risen, FLOOR) end
end

-- Nothing in a timeline stands below its floor, except drops of the time 0 below a floor of 1. So if an entry of a
-- later time stands below the drops, the floor does, too. To count costs half of what the floor itself does, a number
-- that Redis would print and Lua read.
local function add(key, entries, lowest)
  if #entries == 0 then return 0 end
  if active or call('ZCOUNT', key, '1', '(' .. lowest) == 0 then
    local floor = floorOf(key)
    if active and not floor then return 0 end
    if floor and floor > 0 then entries = above(floor, entries) end
  end
  if remote_cap then entries = above_remote_floor(key, entries) end
  if #entries == 0 then return 0 end
  local added = call('ZADD', key, 'LT', unpack(entries))
  if added == 0 then return 0 end
  if remote_cap then bound_remote(key, entries) end
  local size = call('ZCARD', key)
  if ttl > 0 and size == added then
    if not may_make(key) then
      call('DEL', key)
      return 0
    end
    call('PEXPIRE', key, ttl)
  end
  if size > cap then
    local floor = floorOf(key)
    if floor then size = size - 1 end
    local most = floor and floor < 0 and not are_homes and rebuilding * cap or cap
    local risen = size > most and trim(key, floor, size)
    if risen and tonumber(lowest) <= risen then return 0, true end
  end
  return added
end

-- The author of a drop, the author of its original and the author of its parent; "" for none.
local function users_of(byline)
  return string.match(byline, '^([^,]*),?([^,]*),?([^,]*)')
end

-- The byline of a repost ends in its original.
local function is_repost(byline) return string.find(byline, ',.*,.*,.') ~= nil end

-- The users of a byline who have hiders. Their sets are in other slots of a cluster: there each home is asked.
local have_hiders = {}
local function hidden_users(byline)
  local users = {}
  for _, user in ipairs({ users_of(byline) }) do
    if user ~= '' and have_hiders[user] == nil then
      have_hiders[user] = #KEYS > 0 or call('EXISTS', HIDERS .. user) == 1
    end
    if have_hiders[user] then users[#users + 1] = user end
  end
  return users
end

-- The homes among these whose users may not see drops of these users; in a cluster those whose users hide anybody, since
-- one of the fields of a hash is its state.
local function suspects_among(tokens, users)
  local suspects = {}
  if #KEYS > 0 then
    for _, token in ipairs(tokens) do
      if call('HLEN', HIDDEN .. prefix .. token .. '}') > 1 then suspects[token] = true end
    end
    return suspects
  end
  for user in pairs(users) do
    local are = call('SMISMEMBER', HIDERS .. user, unpack(tokens))
    for i, token in ipairs(tokens) do
      if are[i] == 1 then suspects[token] = true end
    end
  end
  return suspects
end

-- A user who hides this one again is added again, before their hash is complete.
local function is_no_hider(token, user)
  if #KEYS == 0 and user ~= '' then call('SREM', HIDERS .. user, token) end
end

-- If a suspect's hash is not complete, the home is not, either: its rebuild decides.
local function is_hidden(token, byline)
  local author, original, parent = users_of(byline)
  if author == '' or author == token then return false end
  local home = prefix .. token
  local hidden = HIDDEN .. home .. '}'
  local held = call('HMGET', hidden, STATE, author, original, parent)
  local is_lost = held[1] ~= 'complete' and call('EXISTS', hidden) == 0
  if is_lost or held[1] == 'complete' then
    if not held[2] then is_no_hider(token, author) end
    if not held[3] then is_no_hider(token, original) end
    if not held[4] then is_no_hider(token, parent) end
  end
  if held[1] ~= 'complete' and #KEYS == 0 then
    call('ZREM', home, FLOOR)
    return true
  end
  if parent ~= '' and held[4] == 'all' then return true end
  return held[2] == 'all' or (original ~= '' and (held[2] == 'reposts' or held[3] == 'all'))
end

-- A reply to somebody else stands in a home if its user wrote it or its parent, or follows who wrote the parent; what
-- the copy of their follows has is in follows.ts. Without a copy the next read rebuilds the home, or the home has all
-- replies. A rebuild under way judges at its end what came meanwhile.
local function is_for_others(token, byline, drop)
  local author, _, parent = users_of(byline)
  if parent == '' or token == author or token == parent then return false end
  local home = prefix .. token
  local follows = FOLLOWS .. home .. '}'
  local held = call('HMGET', follows, STATE, parent, LEFT)
  if held[1] ~= 'complete' then
    if (floorOf(home) or 0) < 0 then
      call('HSET', follows, '?' .. drop, parent)
      call('PEXPIRE', follows, ttl)
    end
    return false
  end
  if held[2] == '1' then
    call('HSET', follows, parent, '2')
  elseif not held[2] and tonumber(held[3] or 0) < tonumber(MOST_LEFT) then
    call('HSET', follows, parent, '0', LEFT, tonumber(held[3] or 0) + 1)
  end
  return not held[2] or held[2] == '0'
end

local function is_reply(byline) return string.find(byline, '^[^,]*,,[^,]') end

-- Returns what only suspensions judge of a drop: the author of its parent, and its author if that is an actor of another server
-- whose host the id of the drop does not name; nil for nothing. bylines.redis.ts has the same rule. "=" is the token of
-- nobody.
local function standing_byline(byline, drop)
  if is_repost(byline) then return nil end
  local author, _, parent = users_of(byline)
  local is_unnamed = string.find(author, ACTOR) and not string.find(drop, '://', 1, true)
  if parent ~= '' then return (is_unnamed and author or '=') .. ',,' .. parent end
  return is_unnamed and author or nil
end

-- The entries that the user of a home sees, and which of the standing bylines are theirs. replies: whether each is a reply
-- to somebody else.
local function shown_to(token, first, last, is_suspect, replies, standing)
  local entries, lowest, kept = {}, '+inf', {}
  for i = first, last, 3 do
    local is_left_out = is_suspect and is_hidden(token, ARGV[i + 2])
    if not is_left_out and not (replies[i] and is_for_others(token, ARGV[i + 2], ARGV[i + 1])) then
      entries[#entries + 1] = ARGV[i]
      entries[#entries + 1] = ARGV[i + 1]
      if tonumber(ARGV[i]) < tonumber(lowest) then lowest = ARGV[i] end
      kept[i] = standing[i]
    end
  end
  return entries, lowest, kept
end

local function is_kept(byline)
  if are_homes then return is_repost(byline) end
  return kind == 'all' or remote_cap or string.find(byline, ',', 1, true)
end

-- Number of bylines up to which those of drops that have left the timeline are not looked for, and after how many new ones
-- they are: to take fields of a listpack at random costs more than all else.
local few, step = 100, 16

-- Removes some of the bylines of drops that have left a timeline: three are looked at for each one that was added, so that
-- about two thirds are of drops that are there.
local function forget_some(bylines, key, count)
  local gone, drops = {}, call('HRANDFIELD', bylines, count)
  for i, score in ipairs(call('ZMSCORE', key, unpack(drops))) do
    if not score then gone[#gone + 1] = drops[i] end
  end
  if #gone > 0 then call('HDEL', bylines, unpack(gone)) end
end

-- Keeps bylines in a hash beside a timeline. While a rebuild, whose mark is a negative floor, is under way, it has kept
-- those of drops that come at its end. Reads renew those of a home.
local function keep(bylines, key, kept)
  local added = 0
  for i, byline in pairs(kept) do added = added + call('HSET', bylines, ARGV[i + 1], byline) end
  local size = call('HLEN', bylines)
  local is_due = size > few and size % step < added
  if is_due and (floorOf(key) or 0) >= 0 then forget_some(bylines, key, 3 * math.max(step, added)) end
  if ttl > 0 and (not are_homes or size == added) then call('PEXPIRE', bylines, ttl) end
end

local total, at = 0, 8
while at <= #ARGV do
  local rest, first, last = ARGV[at], at + 2, at + 1 + 3 * tonumber(ARGV[at + 1])
  local entries, lowest, hidden, replies, kept, standing = {}, '+inf', {}, {}, {}, {}
  for i = first, last, 3 do
    entries[#entries + 1] = ARGV[i]
    entries[#entries + 1] = ARGV[i + 1]
    if tonumber(ARGV[i]) < tonumber(lowest) then lowest = ARGV[i] end
    kept[i] = is_kept(ARGV[i + 2]) and ARGV[i + 2] or nil
    if are_homes then
      replies[i] = is_reply(ARGV[i + 2])
      standing[i] = standing_byline(ARGV[i + 2], ARGV[i + 1])
      for _, user in ipairs(hidden_users(ARGV[i + 2])) do hidden[user] = true end
    end
  end
  local tokens = {}
  for token in string.gmatch(rest, '[^,]+') do tokens[#tokens + 1] = token end
  local suspects = next(hidden) and suspects_among(tokens, hidden)
  for _, token in ipairs(tokens) do
    local key, shown, from, theirs, is_suspect = prefix .. token, entries, lowest, standing, suspects and suspects[token]
    if is_suspect or next(replies) then
      shown, from, theirs = shown_to(token, first, last, is_suspect, replies, standing)
    end
    local added, is_trimmed = add(key, shown, from)
    total = total + added
    -- Nobody reads what has no floor, if only what is read is written: its bylines would stay alone.
    if is_trimmed or added > 0 or not are_homes and (not active or floorOf(key)) then
      if next(kept) or not are_homes then keep(BYLINES .. key .. '}', key, kept) end
      if next(theirs) then keep(STANDING_BYLINES .. key .. '}', key, theirs) end
    end
  end
  at = last + 1
end
if #unmade > 0 then return { total, table.concat(unmade, ',') } end
return total
