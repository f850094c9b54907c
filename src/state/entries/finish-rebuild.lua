-- Completes a timeline with a snapshot of what the upstreams say.
--
-- KEYS[1]  the timeline
-- KEYS[2]  entries that stage-rebuild has stored to be added; this script removes the key
-- KEYS[3]  drops that it has stored to be removed, likewise
-- KEYS[4]  of a home: the copy of its user's followings, which has the replies that came meanwhile
-- KEYS[5]  of a home: the new copy, likewise
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since the snapshot may hold deleted drops
--          and nobody looks for their tombstones any more
-- ARGV[2]  the rebuild's mark
-- ARGV[3]  the time down to which the snapshot is complete, ms; 0: from the start
-- ARGV[4]  cap on drops
-- ARGV[5]  number of drops that were stored
-- ARGV[6]  number of fields of the new copy; 0: the home shows all replies, and has no copy
-- ARGV[7]  number of drop ids that follow and are to be removed
-- ARGV[8+] those ids, then score, drop id, score, drop id, ... of the rest of the snapshot
-- returns  1; 0 if the mark is gone: a change overtook the snapshot, or a key was lost
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the rebuild came after its deadline')
end
local key, adds, removals = KEYS[1], KEYS[2], KEYS[3]
local floor, cap, staged, gone = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7])
local follows, copy, fields = KEYS[4], KEYS[5], tonumber(ARGV[6])
local mark = redis.call('ZSCORE', key, FLOOR)
local held = redis.call('ZCARD', adds) + redis.call('ZCARD', removals)
local is_lost = held ~= staged or (copy and redis.call('HLEN', copy) ~= fields)
if not mark or tonumber(mark) ~= tonumber(ARGV[2]) or is_lost then
  redis.call('DEL', adds, removals)
  if copy then redis.call('UNLINK', copy) end
  return 0
end

-- Replies that came meanwhile stay if the user follows whom they answer.
local function judge(drop, parent)
  local value = redis.call('HGET', follows, parent)
  if value == '1' then redis.call('HSET', follows, parent, '2') end
  if value == '1' or value == '2' then return end
  redis.call('HSET', follows, parent, '0')
  redis.call('ZREM', key, drop)
end

local function replace_copy()
  local came = redis.call('HLEN', follows) > 0 and redis.call('HGETALL', follows) or {}
  redis.call('UNLINK', follows)
  if fields == 0 then return end
  redis.call('RENAME', copy, follows)
  redis.call('HSET', follows, STATE, 'complete')
  local left = redis.call('PTTL', key)
  if left > 0 then redis.call('PEXPIRE', follows, left) end
  for i = 1, #came, 2 do
    if string.sub(came[i], 1, 1) == '?' then judge(string.sub(came[i], 2), came[i + 1]) end
  end
end
-- The floor stays while everything else may go: a key that is empty for a moment loses its time to live.
redis.call('ZADD', key, '+inf', FLOOR)
if staged > 0 then
  -- Both write the key anew, without its time to live.
  local left = redis.call('PTTL', key)
  redis.call('ZDIFFSTORE', key, 2, key, removals)
  redis.call('ZUNIONSTORE', key, 2, key, adds, 'AGGREGATE', 'MIN')
  if left > 0 then redis.call('PEXPIRE', key, left) end
  redis.call('DEL', adds, removals)
end
-- Many at once: each command from Lua costs more than an entry. Lua passes about 8,000 values to a command.
for i = 8, 7 + gone, 2000 do redis.call('ZREM', key, unpack(ARGV, i, math.min(i + 1999, 7 + gone))) end
for i = 8 + gone, #ARGV, 2000 do redis.call('ZADD', key, 'LT', unpack(ARGV, i, math.min(i + 1999, #ARGV))) end
if follows then replace_copy() end
if floor > 0 then redis.call('ZREMRANGEBYSCORE', key, '-inf', ARGV[3]) end
-- Entries that fan-out wrote meanwhile may exceed the cap.
local excess = redis.call('ZCARD', key) - 1 - cap
if excess > 0 then
  local cut = redis.call('ZPOPMIN', key, excess)
  floor = math.max(floor, tonumber(cut[#cut]), 1)
end
redis.call('ZADD', key, floor, FLOOR)
return 1
