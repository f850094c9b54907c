-- Counts the members of sorted sets.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV     the keys
-- returns  the number of members of all together
local count = 0
for _, key in ipairs(ARGV) do count = count + redis.call('ZCARD', key) end
return count
