-- Completes a timeline with a snapshot of what the upstreams say.
--
-- KEYS[1]  the timeline
-- KEYS[2]  what stage-rebuild has put aside to be added; it is gone afterwards
-- KEYS[3]  what it has put aside to be removed, likewise
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since the snapshot may hold what was
--          deleted meanwhile, and nobody looks for tombstones any more
-- ARGV[2]  the rebuild's mark
-- ARGV[3]  the time down to which the snapshot is complete, ms; 0: from the start
-- ARGV[4]  cap on drops
-- ARGV[5]  how many drops were put aside
-- ARGV[6]  how many drop ids follow that are to go
-- ARGV[7+] those ids, then score, drop id, score, drop id, ... of the rest of the snapshot
-- returns  1; 0 if the mark is gone: a change overtook the snapshot, or the key or what was put aside was lost
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the rebuild came after its deadline')
end
local key, adds, removals = KEYS[1], KEYS[2], KEYS[3]
local floor, cap, staged, gone = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local mark = redis.call('ZSCORE', key, FLOOR)
local held = redis.call('ZCARD', adds) + redis.call('ZCARD', removals)
if not mark or tonumber(mark) ~= tonumber(ARGV[2]) or held ~= staged then
  redis.call('DEL', adds, removals)
  return 0
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
for i = 7, 6 + gone, 2000 do redis.call('ZREM', key, unpack(ARGV, i, math.min(i + 1999, 6 + gone))) end
for i = 7 + gone, #ARGV, 2000 do redis.call('ZADD', key, 'LT', unpack(ARGV, i, math.min(i + 1999, #ARGV))) end
if floor > 0 then redis.call('ZREMRANGEBYSCORE', key, '-inf', ARGV[3]) end
-- Entries that fan-out wrote meanwhile may exceed the cap.
local excess = redis.call('ZCARD', key) - 1 - cap
if excess > 0 then
  local cut = redis.call('ZPOPMIN', key, excess)
  floor = math.max(floor, tonumber(cut[#cut]), 1)
end
redis.call('ZADD', key, floor, FLOOR)
return 1
