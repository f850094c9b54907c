-- Reads the hash of those whose drops a user does not see, unless it is large.
--
-- KEYS[1]  the hash
-- ARGV[1]  number of users from which on it is large
-- returns  the state, or ""; how many users; time to live, ms; what the hash has, nothing where it is large
local size = redis.call('HLEN', KEYS[1])
local state = redis.call('HGET', KEYS[1], STATE)
if state then size = size - 1 end
return { state or '', size, redis.call('PTTL', KEYS[1]), size < tonumber(ARGV[1]) and redis.call('HGETALL', KEYS[1]) or {} }
