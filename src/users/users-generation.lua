-- Tells the generation that stands.
--
-- KEYS[1]  the generation, which begins with the run id of the server that made it
-- returns  the generation; false where there is none, or another server made it
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local generation = redis.call('GET', KEYS[1])
return generation and string.sub(generation, 1, #run) == run and generation
