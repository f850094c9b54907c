-- Forgets users who were last seen long ago, and finds connections that are not renewed any more.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  a user seen at this time or before is forgotten, ms since the epoch
-- ARGV[2]  a connection seen at this time or before is found, ms since the epoch
-- ARGV[3]  most users to forget
-- ARGV[4]  most connections to find
-- ARGV[5+] two a part: the keys of users by when they were last seen, and of connections likewise
-- returns  the number of users forgotten, then the connections
local users_left, connections_left = tonumber(ARGV[3]), tonumber(ARGV[4])
local found = { 0 }
for at = 5, #ARGV, 2 do
  local users = redis.call('ZRANGEBYSCORE', ARGV[at], '-inf', ARGV[1], 'LIMIT', 0, users_left)
  if #users > 0 then redis.call('ZREM', ARGV[at], unpack(users)) end
  users_left = users_left - #users
  local connections = redis.call('ZRANGEBYSCORE', ARGV[at + 1], '-inf', ARGV[2], 'LIMIT', 0, connections_left)
  for _, connection in ipairs(connections) do found[#found + 1] = connection end
  connections_left = connections_left - #connections
end
found[1] = tonumber(ARGV[3]) - users_left
return found
