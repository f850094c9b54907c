-- Finds the listeners among users.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  a user who was seen later listens, ms since the epoch
-- ARGV[2+] for each sorted set its key and the number of users asked for, then these users, encoded
-- returns  the places of those who listen, from 0, among all users asked for
local since = tonumber(ARGV[1])
local places = {}
local at, before = 2, 0
while at < #ARGV do
  local count = tonumber(ARGV[at + 1])
  local seen = redis.call('ZMSCORE', ARGV[at], unpack(ARGV, at + 2, at + 1 + count))
  for i = 1, count do
    if seen[i] and tonumber(seen[i]) > since then places[#places + 1] = before + i - 1 end
  end
  at, before = at + 2 + count, before + count
end
return places
