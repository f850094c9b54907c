-- Adds a user to the hiders of others.
--
-- KEYS     none: a Redis Cluster has no hiders
-- ARGV[1]  the user
-- ARGV[2]  time to live of the sets, ms
-- ARGV[3+] the user's hidden users
-- returns  1
for i = 3, #ARGV do
  local hiders = HIDERS .. ARGV[i]
  redis.call('SADD', hiders, ARGV[1])
  redis.call('PEXPIRE', hiders, ARGV[2])
end
return 1
