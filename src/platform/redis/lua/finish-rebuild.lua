-- Completes a timeline with a snapshot of what the upstreams say.
--
-- KEYS[1]  the timeline
-- ARGV[1]  the rebuild's mark
-- ARGV[2]  the time down to which the snapshot is complete, ms; 0: from the start
-- ARGV[3]  cap on drops
-- ARGV[4]  how many drop ids follow that are to go
-- ARGV[5+] those ids, then score, drop id, score, drop id, ... of the snapshot
-- returns  1; 0 where the mark is gone: a change overtook the snapshot, or the key was lost
local key, floor, cap, gone = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local mark = redis.call('ZSCORE', key, '~floor')
if not mark or tonumber(mark) ~= tonumber(ARGV[1]) then return 0 end
-- The floor stays while everything else may go: a key that is empty for a moment loses its time to live.
redis.call('ZADD', key, '+inf', '~floor')
for i = 5, 4 + gone do redis.call('ZREM', key, ARGV[i]) end
for i = 5 + gone, #ARGV, 2 do redis.call('ZADD', key, 'LT', ARGV[i], ARGV[i + 1]) end
if floor > 0 then redis.call('ZREMRANGEBYSCORE', key, '-inf', ARGV[2]) end
-- What fan-out wrote meanwhile may have passed the cap.
local excess = redis.call('ZCARD', key) - 1 - cap
if excess > 0 then
  local cut = redis.call('ZPOPMIN', key, excess)
  floor = math.max(floor, tonumber(cut[#cut]), 1)
end
redis.call('ZADD', key, floor, '~floor')
return 1
