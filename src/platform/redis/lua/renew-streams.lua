-- Renews the registrations of event streams, and finds those that are gone.
--
-- KEYS[1]  users who listen now or did lately
-- KEYS[2]  connections by when they were last seen
-- KEYS[3+] two a stream: connections of the user, the connection
-- ARGV[1]  now, ms since the epoch
-- ARGV[2]  time to live of a connection, seconds
-- ARGV[3]  time to live of the list of users, seconds
-- ARGV[4+] two a stream: user, encoded; connection
-- returns  the connections that are gone
local now, ttl = ARGV[1], ARGV[2]
local gone = {}
local at = 4
for key = 3, #KEYS, 2 do
  local user, connection = ARGV[at], ARGV[at + 1]
  local listed = redis.call('ZSCORE', KEYS[1], user)
  if listed then redis.call('ZADD', KEYS[1], now, user) end
  redis.call('ZADD', KEYS[2], now, connection)
  redis.call('EXPIRE', KEYS[key], 2 * ttl)
  local kept = redis.call('EXPIRE', KEYS[key + 1], ttl) == 1
  if not (listed and kept and redis.call('SISMEMBER', KEYS[key], connection) == 1) then gone[#gone + 1] = connection end
  at = at + 2
end
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('EXPIRE', KEYS[2], 10 * ttl)
return gone
