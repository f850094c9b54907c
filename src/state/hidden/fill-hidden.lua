-- Fills the hash of a user's hidden users, piece by piece: the pieces are staged beside it.
--
-- Until the fill ends, the hash keeps its earlier users. A change that comes meanwhile writes the current state into the
-- changes, which count more than the staged pieces, and renews the mark. A process of 0.2.0 fills the hash in one step,
-- and its changes remove the mark: the fill is over. If the hash was incomplete and has somebody now, the home may have
-- their drops; if a mute has ended, it lacks drops: it is not complete any more. The hash expires when the first mute ends.
--
-- KEYS[1]  the hash: user -> "all" or "reposts"; ~state -> "complete", or the mark of a fill
-- KEYS[2]  the staged pieces: likewise, with ~fill -> name of the fill, ~mark -> its mark, ~until -> when the first mute
--          ends, ms
-- KEYS[3]  the changes: user -> "=all", "=reposts", "=" of nobody; or the mark of a change that is being applied
-- KEYS[4]  the home
-- KEYS[5]  "1" once the hash has a mute that ends, until the home is without it
-- ARGV[1]  "begin", "add" or "finish"
-- ARGV[2]  "begin": a name that no fill has had; else the name that "begin" returned
-- ARGV[3]  time to live of the hash, ms
-- ARGV[4]  time to live of the staged pieces, ms
-- ARGV[5]  time until the first mute ends, ms; "": none does
-- ARGV[6+] with "add": user, "all" or "reposts", ...
-- returns  "begin": the name of the fill, nil if the hash is complete; else 1, or 0 if the fill is over
local call, key, staged, changes = redis.call, KEYS[1], KEYS[2], KEYS[3]
local step, name = ARGV[1], ARGV[2]
local state = call('HGET', key, STATE)
local fill, mark = unpack(call('HMGET', staged, '~fill', '~mark'))
local stands = fill and mark == state

local function now()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function renew()
  call('PEXPIRE', staged, ARGV[4])
  call('PEXPIRE', changes, 2 * ARGV[4])
end

local function settled(work)
  local all = call('HGETALL', changes)
  for i = 1, #all, 2 do
    if string.sub(all[i + 1], 1, 1) == '=' then work(all[i], string.sub(all[i + 1], 2)) end
  end
end

local function forget(user) call('HDEL', changes, user) end

if state == 'complete' then return step ~= 'begin' and 1 or nil end
if step == 'begin' then
  if not stands then
    call('UNLINK', staged)
    settled(forget)
    call('HSET', staged, '~fill', name, '~mark', name)
    call('HSET', key, STATE, name)
    call('PEXPIRE', key, ARGV[3])
    fill = name
  end
  renew()
  return fill
end
if not stands or fill ~= name then return 0 end
if step == 'add' then
  if ARGV[5] ~= '' then
    local ends = now() + ARGV[5]
    local first = call('HGET', staged, '~until') or ends
    call('HSET', staged, '~until', string.format('%d', math.min(first, ends)))
  end
  for i = 6, #ARGV, 2 do call(ARGV[i + 1] == 'all' and 'HSET' or 'HSETNX', staged, ARGV[i], ARGV[i + 1]) end
  renew()
  return 1
end
settled(function(user, hiding)
  if hiding == '' then call('HDEL', staged, user) else call('HSET', staged, user, hiding) end
  forget(user)
end)
local ends = call('HGET', staged, '~until')
call('HDEL', staged, '~fill', '~mark', '~until')
call('HSET', staged, STATE, 'complete')
call('UNLINK', key)
call('RENAME', staged, key)
if call('DEL', KEYS[5]) == 1 or call('HLEN', key) > 1 then call('ZREM', KEYS[4], FLOOR) end
local left = math.max(1, ends and ends - now() or ARGV[3])
call('PEXPIRE', key, string.format('%d', math.min(left, ARGV[3])))
if ends then call('SET', KEYS[5], '1', 'PX', string.format('%d', left + ARGV[3])) end
return 1
