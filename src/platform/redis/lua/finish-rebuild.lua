-- Completes a timeline with a snapshot of what the upstreams say.
--
-- KEYS[1]  the timeline
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused, since the snapshot may hold what was
--          deleted meanwhile, and nobody looks for tombstones any more
-- ARGV[2]  the rebuild's mark
-- ARGV[3]  the time down to which the snapshot is complete, ms; 0: from the start
-- ARGV[4]  cap on drops
-- ARGV[5]  how many drop ids follow that are to go
-- ARGV[6+] those ids, then score, drop id, score, drop id, ... of the snapshot
-- returns  1; 0 where the mark is gone: a change overtook the snapshot, or the key was lost
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the rebuild came after its deadline')
end
local key, floor, cap, gone = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local mark = redis.call('ZSCORE', key, '~floor')
if not mark or tonumber(mark) ~= tonumber(ARGV[2]) then return 0 end
-- The floor stays while everything else may go: a key that is empty for a moment loses its time to live.
redis.call('ZADD', key, '+inf', '~floor')
for i = 6, 5 + gone do redis.call('ZREM', key, ARGV[i]) end
for i = 6 + gone, #ARGV, 2 do redis.call('ZADD', key, 'LT', ARGV[i], ARGV[i + 1]) end
if floor > 0 then redis.call('ZREMRANGEBYSCORE', key, '-inf', ARGV[3]) end
-- What fan-out wrote meanwhile may have passed the cap.
local excess = redis.call('ZCARD', key) - 1 - cap
if excess > 0 then
  local cut = redis.call('ZPOPMIN', key, excess)
  floor = math.max(floor, tonumber(cut[#cut]), 1)
end
redis.call('ZADD', key, floor, '~floor')
return 1
