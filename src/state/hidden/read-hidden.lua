-- Reads the hash of a user's hidden users, unless it is large.
--
-- KEYS[1]  the hash
-- ARGV[1]  number of users from which on it is large
-- returns  the state, or ""; number of users; time to live, ms; fields and values of the hash, none if it is large
local size = redis.call('HLEN', KEYS[1])
local state = redis.call('HGET', KEYS[1], STATE)
if state then size = size - 1 end
return { state or '', size, redis.call('PTTL', KEYS[1]), size < tonumber(ARGV[1]) and redis.call('HGETALL', KEYS[1]) or {} }
