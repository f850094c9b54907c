-- Notes that the users of event streams are seen now, where they are still listed, and that the connections are.
--
-- A listing that has ended is not prolonged.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  now, ms since the epoch
-- ARGV[2]  time to live of a listing's name, ms
-- ARGV[3]  time to live of the sorted set of users, seconds
-- ARGV[4]  time to live of the sorted set of connections, seconds
-- ARGV[5]  a user seen before this time is not listed any more, ms since the epoch
-- ARGV[6+] six a stream: the keys of users by when they were last seen, of connections likewise, and of the listing's
--          name; user, encoded; connection, or "" for one that ends; name of the stream's listing
-- returns  for each stream 1 if its user is listed, and this is the listing, else 0
local now, listed_since = ARGV[1], tonumber(ARGV[5])
local listed, expiring = {}, {}
for at = 6, #ARGV, 6 do
  local users, connections, key, user, connection = unpack(ARGV, at, at + 4)
  local seen = redis.call('ZSCORE', users, user)
  local is_listed = seen and tonumber(seen) >= listed_since
  if is_listed then redis.call('ZADD', users, now, user) end
  if connection ~= '' then redis.call('ZADD', connections, now, connection) end
  is_listed = redis.call('GET', key) == ARGV[at + 5] and is_listed
  redis.call('PEXPIRE', key, ARGV[2])
  expiring[users], expiring[connections] = ARGV[3], ARGV[4]
  listed[#listed + 1] = is_listed and 1 or 0
end
for key, ttl in pairs(expiring) do redis.call('EXPIRE', key, ttl) end
return listed
