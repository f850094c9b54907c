-- Registers an event stream, and first the position from which notifications are complete where its user was not listed.
--
-- KEYS[1]  users who listen now or did lately
-- KEYS[2]  position from which the user's streams may be resumed
-- KEYS[3]  connections by when they were last seen
-- KEYS[4]  connections of the user
-- KEYS[5]  the connection
-- ARGV[1]  user, encoded
-- ARGV[2]  connection
-- ARGV[3]  now, ms since the epoch
-- ARGV[4]  a user seen before this time is not listed any more, ms since the epoch
-- ARGV[5]  sequence of the position to store
-- ARGV[6]  incarnation of that position
-- ARGV[7]  time to live of the position, ms
-- ARGV[8]  time to live of the connection, seconds
-- ARGV[9]  time to live of the list of users, seconds
-- ARGV[10..] fields of the connection and their values
-- returns  the position from which the user's streams may be resumed, or false: any
local seen = redis.call('ZSCORE', KEYS[1], ARGV[1])
local from = redis.call('GET', KEYS[2])
if not seen or tonumber(seen) < tonumber(ARGV[4]) then
  local known = from and string.match(from, '^(%d+)%-' .. ARGV[6] .. '$')
  if not known or tonumber(known) < tonumber(ARGV[5]) then from = ARGV[5] .. '-' .. ARGV[6] end
  redis.call('SET', KEYS[2], from, 'PX', ARGV[7])
end
redis.call('ZADD', KEYS[3], ARGV[3], ARGV[2])
redis.call('EXPIRE', KEYS[3], 10 * ARGV[8])
redis.call('SADD', KEYS[4], ARGV[2])
redis.call('EXPIRE', KEYS[4], 2 * ARGV[8])
redis.call('HSET', KEYS[5], unpack(ARGV, 10))
redis.call('EXPIRE', KEYS[5], ARGV[8])
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[9])
return from
