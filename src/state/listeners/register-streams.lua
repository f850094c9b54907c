-- Registers event streams, and begins a listing of each user who was not listed: its name is stored first.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  now, ms since the epoch
-- ARGV[2]  time to live of a listing's name, ms
-- ARGV[3]  time to live of the sorted set of users, seconds
-- ARGV[4]  time to live of the sorted set of connections, seconds
-- ARGV[5]  a user seen before this time is not listed any more, ms since the epoch
-- ARGV[6+] six a stream: the keys of users by when they were last seen, of connections likewise, and of the listing's
--          name; user, encoded; connection; name of a new listing
-- returns  for each stream the name of its user's listing
local now, listed_since = ARGV[1], tonumber(ARGV[5])
local listings, expiring = {}, {}
for at = 6, #ARGV, 6 do
  local users, connections, key, user = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local seen = redis.call('ZSCORE', users, user)
  local listing = redis.call('GET', key)
  if not listing or not seen or tonumber(seen) < listed_since then
    listing = ARGV[at + 5]
    redis.call('SET', key, listing, 'PX', ARGV[2])
  end
  redis.call('ZADD', connections, now, ARGV[at + 4])
  redis.call('ZADD', users, now, user)
  expiring[users], expiring[connections] = ARGV[3], ARGV[4]
  listings[#listings + 1] = listing
end
for key, ttl in pairs(expiring) do redis.call('EXPIRE', key, ttl) end
return listings
