-- Forgets what is remembered about a user, and keeps what was read before from being stored.
--
-- KEYS[1]  the generation
-- KEYS[2+] what is remembered under it
-- ARGV[1]  the generation from now on, which nobody else uses
-- ARGV[2]  its time to live, ms
-- returns  1
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
for i = 2, #KEYS do redis.call('DEL', KEYS[i]) end
return 1
