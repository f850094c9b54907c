-- Registers event streams, and begins a new listing where a user was not listed, whose name is stored first.
--
-- KEYS[1]  users who listen now or did lately
-- KEYS[2]  connections by when they were last seen
-- KEYS[3+] three a stream: name of the user's listing, connections of the user, the connection
-- ARGV[1]  now, ms since the epoch
-- ARGV[2]  time to live of the name of a listing, ms
-- ARGV[3]  time to live of a connection, seconds
-- ARGV[4]  time to live of the list of users, seconds
-- ARGV[5]  pod
-- ARGV[6]  a user seen before this time is not listed any more, ms since the epoch
-- ARGV[7+] five a stream: user, encoded; connection; name of a new listing; user; creation of the connection
-- returns  for each stream the name of its user's listing
local now, ttl, listed_since = ARGV[1], ARGV[3], tonumber(ARGV[6])
local listings = {}
local at = 7
for key = 3, #KEYS, 3 do
  local user, connection = ARGV[at], ARGV[at + 1]
  local seen = redis.call('ZSCORE', KEYS[1], user)
  local listing = redis.call('GET', KEYS[key])
  if not listing or not seen or tonumber(seen) < listed_since then
    listing = ARGV[at + 2]
    redis.call('SET', KEYS[key], listing, 'PX', ARGV[2])
  end
  redis.call('ZADD', KEYS[2], now, connection)
  redis.call('SADD', KEYS[key + 1], connection)
  redis.call('EXPIRE', KEYS[key + 1], 2 * ttl)
  redis.call('HSET', KEYS[key + 2], 'pod_name', ARGV[5], 'user_id', ARGV[at + 3], 'created_at', ARGV[at + 4])
  redis.call('EXPIRE', KEYS[key + 2], ttl)
  redis.call('ZADD', KEYS[1], now, user)
  listings[#listings + 1] = listing
  at = at + 5
end
redis.call('EXPIRE', KEYS[2], 10 * ttl)
redis.call('EXPIRE', KEYS[1], ARGV[4])
return listings
