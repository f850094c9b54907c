-- Records tombstones, announces them to processes that hold pages, and removes those older than the log.
--
-- KEYS[1]  the tombstones
-- ARGV[1]  tombstones from before this time are removed, ms
-- ARGV[2]  the channel on which each drop is announced; "": none
-- ARGV[3+] time of deletion in ms, drop id, time, drop id, ...
-- returns  1 if the tombstones are complete, 0 if they were lost and must be refilled (a negative
--          floor marks a refill under way)
local key = KEYS[1]
for i = 3, #ARGV, 2 do
  redis.call('ZADD', key, 'LT', ARGV[i], ARGV[i + 1])
  if ARGV[2] ~= '' then redis.call('PUBLISH', ARGV[2], ARGV[i + 1]) end
end
local floor = redis.call('ZSCORE', key, '~floor')
if not floor or tonumber(floor) < 0 then return 0 end
redis.call('ZREM', key, '~floor')
redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. ARGV[1])
redis.call('ZADD', key, math.max(tonumber(floor), tonumber(ARGV[1])), '~floor')
return 1
