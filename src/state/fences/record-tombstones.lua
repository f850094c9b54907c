-- Records tombstones, announces them to processes that hold pages, and removes those older than the log.
--
-- KEYS[1]  the tombstones
-- ARGV[1]  how long a tombstone is kept by this server's clock, ms
-- ARGV[2]  the channel on which each drop is announced
-- ARGV[3+] time of deletion in ms, drop id, time, drop id, ...
-- returns  1 if the tombstones are complete, 0 if they were lost and must be refilled (a negative
--          floor marks a refill under way)
local key, time = KEYS[1], redis.call('TIME')
local before = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[1]))
for i = 3, #ARGV, 2 do
  redis.call('ZADD', key, 'LT', ARGV[i], ARGV[i + 1])
  redis.call('PUBLISH', ARGV[2], ARGV[i + 1])
end
local floor = redis.call('ZSCORE', key, FLOOR)
if not floor or tonumber(floor) < 0 then return 0 end
redis.call('ZREM', key, FLOOR)
redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. before)
redis.call('ZADD', key, math.max(tonumber(floor), tonumber(before)), FLOOR)
return 1
