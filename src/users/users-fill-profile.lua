-- Stores a profile, unless it has changed since it was read.
--
-- KEYS[1]  the profile
-- KEYS[2]  its generation, which begins with the run id of the server that made it
-- ARGV[1]  the generation that stood before it was read
-- ARGV[2]  time to live of the profile, ms
-- ARGV[3]  the profile; "" where there is none
-- returns  1; 0 where another generation stands, or none: it may have changed
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if redis.call('GET', KEYS[2]) ~= ARGV[1] or string.sub(ARGV[1], 1, #run) ~= run then return 0 end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
return 1
