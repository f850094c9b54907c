-- Renews the registrations of event streams, and finds those that are gone or of an earlier listing of their user.
--
-- KEYS[1]  users who listen now or did lately
-- KEYS[2]  connections by when they were last seen
-- KEYS[3+] three a stream: name of the user's listing, connections of the user, the connection
-- ARGV[1]  now, ms since the epoch
-- ARGV[2]  time to live of a connection, seconds
-- ARGV[3]  time to live of the list of users, seconds
-- ARGV[4]  time to live of the name of a listing, ms
-- ARGV[5]  a user seen before this time is not listed any more, ms since the epoch
-- ARGV[6+] three a stream: user, encoded; connection; name of its listing
-- returns  the connections that are gone
local now, ttl, listed_since = ARGV[1], ARGV[2], tonumber(ARGV[5])
local gone = {}
local at = 6
for key = 3, #KEYS, 3 do
  local user, connection = ARGV[at], ARGV[at + 1]
  local seen = redis.call('ZSCORE', KEYS[1], user)
  local listed = seen and tonumber(seen) >= listed_since
  if listed then redis.call('ZADD', KEYS[1], now, user) end
  redis.call('ZADD', KEYS[2], now, connection)
  listed = redis.call('GET', KEYS[key]) == ARGV[at + 2] and listed
  redis.call('PEXPIRE', KEYS[key], ARGV[4])
  redis.call('EXPIRE', KEYS[key + 1], 2 * ttl)
  redis.call('EXPIRE', KEYS[key + 2], ttl)
  local kept = redis.call('HEXISTS', KEYS[key + 2], 'pod_name') == 1
  if not (listed and kept and redis.call('SISMEMBER', KEYS[key + 1], connection) == 1) then gone[#gone + 1] = connection end
  at = at + 3
end
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('EXPIRE', KEYS[2], 10 * ttl)
return gone
