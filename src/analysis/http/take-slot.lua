-- Counts a request of a sliding window, unless as many are counted already.
--
-- KEYS[1]  the requests counted, by their time
-- ARGV[1]  the request; empty: only look
-- ARGV[2]  how many the window has room for
-- ARGV[3]  length of the window, ms
-- ARGV[4]  now, ms since the epoch
-- returns  1 where the request is counted, also by an earlier call; how many are counted; time until one of them, or
--          where there is no room until room for another, leaves the window, ms: 0 where none is counted
local request, room, window, now = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local counted = redis.call('ZCARD', KEYS[1])
local taken = request ~= '' and redis.call('ZSCORE', KEYS[1], request) and 1 or 0
if taken == 0 and request ~= '' and counted < room then
  redis.call('ZADD', KEYS[1], ARGV[4], request)
  redis.call('PEXPIRE', KEYS[1], window)
  taken, counted = 1, counted + 1
end
local first = redis.call('ZRANGE', KEYS[1], math.max(0, counted - room), math.max(0, counted - room), 'WITHSCORES')[2]
return { taken, counted, first and first + window - now or 0 }
