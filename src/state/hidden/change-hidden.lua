-- Changes the hidden users of a user, in two steps.
--
-- Between them the caller asks for the current state: events may come twice, late and in any order. A change of the same
-- two users that begins later takes over.
--
-- Drops that are hidden now leave the home, and those that are shown again come back: the next read rebuilds the home.
-- Changes by others cause that at most once in some seconds; in between the home notes when the next rebuild is due.
-- The hash expires when the first of its mutes ends.
--
-- KEYS[1]  the home
-- KEYS[2]  the hash of the user's hidden users
-- KEYS[3]  its changes
-- KEYS[4]  the staged pieces of a fill
-- KEYS[5]  the renewal of the home: "0" after one, or when the next is due, ms
-- KEYS[6]  "1" once the hash has a mute that ends, until the home is without it
-- ARGV[1]  "begin"; "finish"; "renew" if the home may have got drops meanwhile; "lose" if the current state is unknown:
--          the hash is no longer complete
-- ARGV[2]  the mark of the change
-- ARGV[3]  time to live of the hash, ms
-- ARGV[4]  time to live of the changes, ms
-- ARGV[5]  time between two renewals, ms
-- ARGV[6+] "begin": users; "renew": nothing; else user, "all", "reposts" or "", and "own"; "other"; "apart" if the home
--          has no drop that changes; time until the end, ms, or ""
-- returns  "begin": "complete", "filling" or "", then what is hidden of each user; "finish": of each user 1, 0 if a
--          later change has taken over, -1 if the change was lost; else nothing
local call, home, hidden, changes, staged, renewal = redis.call, KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local step, mark, ttl = ARGV[1], ARGV[2], ARGV[3]
local state = call('HGET', hidden, STATE) or ''
local is_filling = state ~= '' and call('HGET', staged, '~mark') == state
if state ~= 'complete' then state = is_filling and 'filling' or '' end

-- Pages that are cached follow the home.
local function touch()
  local floor = call('ZSCORE', home, FLOOR)
  if not floor then return end
  call('ZREM', home, FLOOR)
  call('ZADD', home, floor, FLOOR)
end

local function renew(hides)
  if hides then call('DEL', home) else call('ZREM', home, FLOOR) end
end

local function renew_later(hides)
  local due = call('GET', renewal)
  if not due then
    renew(hides)
    call('SET', renewal, '0', 'PX', ARGV[5])
  elseif due == '0' then
    local time = call('TIME')
    local at = time[1] * 1000 + math.floor(time[2] / 1000) + call('PTTL', renewal)
    call('SET', renewal, string.format('%d', at), 'PX', ttl)
    touch()
  end
end

local function change(user, hiding, how)
  local held = call('HGET', hidden, user) or ''
  if hiding == '' then call('HDEL', hidden, user) else call('HSET', hidden, user, hiding) end
  if is_filling then call('HSET', changes, user, '=' .. hiding) else call('HDEL', changes, user) end
  if held == hiding and not is_filling then return end
  local hides = hiding == 'all' or (hiding ~= '' and held == '')
  if how == 'own' then renew(hides) elseif is_filling then renew(false) elseif how == 'other' then renew_later(hides) else touch() end
end

local function end_in(left)
  if left == '' then return end
  if is_filling then
    local time = call('TIME')
    local ends = time[1] * 1000 + math.floor(time[2] / 1000) + left
    local first = call('HGET', staged, '~until') or ends
    call('HSET', staged, '~until', string.format('%d', math.min(first, ends)))
  elseif call('PTTL', hidden) > tonumber(left) then
    call('PEXPIRE', hidden, left)
    call('SET', KEYS[6], '1', 'PX', string.format('%d', left + ttl))
    touch()
  end
end

if step == 'begin' then
  local answer = { state }
  for i = 6, #ARGV do
    call('HSET', changes, ARGV[i], mark)
    answer[#answer + 1] = call('HGET', hidden, ARGV[i]) or ''
  end
  call('PEXPIRE', changes, ARGV[4])
  return answer
end

if step == 'renew' then return renew_later(true) end

if step == 'lose' then
  call('HDEL', hidden, STATE)
  for i = 6, #ARGV, 4 do
    local user, hiding = ARGV[i], ARGV[i + 1]
    call('HDEL', changes, user)
    if hiding ~= '' and call('HGET', hidden, user) ~= 'all' then call('HSET', hidden, user, hiding) end
    renew(hiding ~= '')
  end
  call('PEXPIRE', hidden, ttl)
  return
end

local results = {}
for i = 6, #ARGV, 4 do
  local stands = call('HGET', changes, ARGV[i])
  if state == '' or not stands then results[#results + 1] = -1
  elseif stands ~= mark then results[#results + 1] = 0
  else
    change(ARGV[i], ARGV[i + 1], ARGV[i + 2])
    end_in(ARGV[i + 3])
    results[#results + 1] = 1
  end
end
-- A fill of a process that knows no changes must not end with what it has read.
if is_filling then
  call('HSET', hidden, STATE, mark)
  call('HSET', staged, '~mark', mark)
end
return results
