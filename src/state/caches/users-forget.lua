-- Forgets what is remembered of a list of users, and keeps what was read before from being stored.
--
-- KEYS[1]  the generation, which begins with the run id of the server that made it
-- KEYS[2+] what is remembered under it
-- ARGV[1]  a name nobody else uses, for the generation from now on
-- ARGV[2]  its time to live, ms
-- returns  1
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
redis.call('SET', KEYS[1], run .. ':' .. ARGV[1], 'PX', ARGV[2])
for i = 2, #KEYS do redis.call('DEL', KEYS[i]) end
return 1
