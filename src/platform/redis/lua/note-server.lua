-- Tells whether this server's data descends unbroken from what was written to it, and notes how far that goes.
--
-- A server that restarts or takes over has a run id of its own, and data as old as the note that survived in it.
--
-- KEYS[1]  the note
-- ARGV[1]  from when on events may not have been applied by now, ms; "": only look
-- ARGV[2]  "1": whatever was lost has been applied again
-- returns  { "new", "" } where there is no note; { "same", from } or { "broken", from } with the time it holds
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local held = redis.call('HMGET', KEYS[1], 'run', 'from')
local state = not held[1] and 'new' or held[1] == run and 'same' or 'broken'
if ARGV[1] ~= '' and (state ~= 'broken' or ARGV[2] == '1') then
  redis.call('HSET', KEYS[1], 'run', run, 'from', ARGV[1])
end
return { state, held[2] or '' }
