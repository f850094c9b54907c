-- Reads a profile.
--
-- KEYS[1]  the profile; "" where it is known that there is none
-- KEYS[2]  its generation
-- ARGV[1]  a generation nobody else uses, for where there is none
-- ARGV[2]  its time to live, ms
-- returns  { generation, profile }; without the second where it is not remembered
local generation = redis.call('GET', KEYS[2])
if not generation then
  generation = ARGV[1]
  redis.call('SET', KEYS[2], generation, 'PX', ARGV[2])
end
return { generation, redis.call('GET', KEYS[1]) or nil }
