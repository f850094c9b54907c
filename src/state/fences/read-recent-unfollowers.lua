-- Reads recent unfollowers of an author, in the order they were recorded.
--
-- KEYS[1]  the part of the follow edges whose floor covers them
-- KEYS[2]  the recent unfollowers
-- ARGV[1]  field of the part with the time when one was last recorded
-- ARGV[2]  how long they are kept, ms
-- ARGV[3]  from when on, ms
-- ARGV[4]  how many
-- returns  { "1" if they are complete, else "", user, time, user, time, ... }
local noted = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', ':(%d+)$')
if noted and redis.call('ZCARD', KEYS[2]) == 0 then
  local time = redis.call('TIME')
  -- Lost, and not expired: the part is not complete until it is refilled, with what the log still has.
  if time[1] - noted < tonumber(ARGV[2]) / 1000 - 60 then redis.call('HDEL', KEYS[1], FLOOR, ARGV[1]) end
end
if redis.call('HGET', KEYS[1], FLOOR) ~= '1' then return { '' } end
local held = redis.call('ZRANGEBYSCORE', KEYS[2], ARGV[3], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4])
table.insert(held, 1, '1')
return held
