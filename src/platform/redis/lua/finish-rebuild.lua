-- Completes a timeline with a snapshot of what the upstreams say.
--
-- KEYS[1]  the timeline
-- KEYS[2]  what stage-rebuild has put aside of it; it is gone afterwards
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since the snapshot may hold what was
--          deleted meanwhile, and nobody looks for tombstones any more
-- ARGV[2]  the rebuild's mark
-- ARGV[3]  the time down to which the snapshot is complete, ms; 0: from the start
-- ARGV[4]  cap on drops
-- ARGV[5]  how many members were put aside
-- ARGV[6+] score, member, score, member, ... of the rest: "+" and a drop id to add, or "-" and one to remove
-- returns  1; 0 where the mark is gone: a change overtook the snapshot, or the key or what was put aside was lost
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the rebuild came after its deadline')
end
local key, staged, floor, cap = KEYS[1], KEYS[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local mark = redis.call('ZSCORE', key, '~floor')
local size = redis.call('ZCARD', staged)
if not mark or tonumber(mark) ~= tonumber(ARGV[2]) or size ~= tonumber(ARGV[5]) then
  redis.call('DEL', staged)
  return 0
end
-- The floor stays while everything else may go: a key that is empty for a moment loses its time to live.
redis.call('ZADD', key, '+inf', '~floor')

local function apply(score, member)
  local drop = string.sub(member, 2)
  if string.byte(member) == 45 then
    redis.call('ZREM', key, drop)
  else
    redis.call('ZADD', key, 'LT', score, drop)
  end
end

for first = 0, size - 1, 5000 do
  local part = redis.call('ZRANGE', staged, first, first + 4999, 'WITHSCORES')
  for i = 1, #part, 2 do apply(part[i + 1], part[i]) end
end
redis.call('DEL', staged)
for i = 6, #ARGV, 2 do apply(ARGV[i], ARGV[i + 1]) end
if floor > 0 then redis.call('ZREMRANGEBYSCORE', key, '-inf', ARGV[3]) end
-- What fan-out wrote meanwhile may have passed the cap.
local excess = redis.call('ZCARD', key) - 1 - cap
if excess > 0 then
  local cut = redis.call('ZPOPMIN', key, excess)
  floor = math.max(floor, tonumber(cut[#cut]), 1)
end
redis.call('ZADD', key, floor, '~floor')
return 1
