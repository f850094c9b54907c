-- Renews the registrations of event streams, and finds those that are gone.
--
-- KEYS[1]  users who listen now or did lately
-- KEYS[2]  connections by when they were last seen
-- KEYS[3+] three a stream: position from which the user's streams may be resumed, connections of the user, the connection
-- ARGV[1]  now, ms since the epoch
-- ARGV[2]  time to live of a connection, seconds
-- ARGV[3]  time to live of the list of users, seconds
-- ARGV[4]  time to live of a position, ms
-- ARGV[5+] two a stream: user, encoded; connection
-- returns  the connections that are gone
local now, ttl = ARGV[1], ARGV[2]
local gone = {}
local at = 5
for key = 3, #KEYS, 3 do
  local user, connection = ARGV[at], ARGV[at + 1]
  local listed = redis.call('ZSCORE', KEYS[1], user)
  if listed then redis.call('ZADD', KEYS[1], now, user) end
  redis.call('ZADD', KEYS[2], now, connection)
  listed = redis.call('PEXPIRE', KEYS[key], ARGV[4]) == 1 and listed
  redis.call('EXPIRE', KEYS[key + 1], 2 * ttl)
  local kept = redis.call('EXPIRE', KEYS[key + 2], ttl) == 1
  if not (listed and kept and redis.call('SISMEMBER', KEYS[key + 1], connection) == 1) then gone[#gone + 1] = connection end
  at = at + 2
end
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('EXPIRE', KEYS[2], 10 * ttl)
return gone
