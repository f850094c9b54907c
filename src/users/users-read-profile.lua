-- Reads a profile.
--
-- KEYS[1]  the profile; "" where it is known that there is none
-- KEYS[2]  its generation, which begins with the run id of the server that made it
-- ARGV[1]  a name nobody else uses, for the generation where there is none
-- ARGV[2]  its time to live, ms
-- returns  { generation, profile }; without the second where it is not remembered
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local generation = redis.call('GET', KEYS[2])
-- A server that was started again or took over may have lost changes: it begins anew.
if not generation or string.sub(generation, 1, #run) ~= run then
  generation = run .. ':' .. ARGV[1]
  redis.call('SET', KEYS[2], generation, 'PX', ARGV[2])
  redis.call('DEL', KEYS[1])
end
return { generation, redis.call('GET', KEYS[1]) or nil }
