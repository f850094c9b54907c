-- Tells whether this server's data descends unbroken from what was written to it, and notes how far that goes.
--
-- A server that restarts or takes over has a run id of its own, and data as old as the note that survived in it.
--
-- KEYS[1]  the note
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused: it vouches
-- ARGV[2]  from when on events may not have been applied by now, ms; "": only look
-- ARGV[3]  "1": whatever was lost has been applied again
-- ARGV[4]  in which streams the events are, as one opaque string; "" where ARGV[2] is
-- returns  { "new", "", "" } where there is no note; { "same", from, streams } or { "broken", from, streams } with what it held
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the note came after its deadline')
end
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local held = redis.call('HMGET', KEYS[1], 'run', 'from', 'log')
local state = not held[1] and 'new' or held[1] == run and 'same' or 'broken'
if ARGV[2] ~= '' and (state ~= 'broken' or ARGV[3] == '1') then
  redis.call('HSET', KEYS[1], 'run', run, 'from', ARGV[2], 'log', ARGV[4])
end
return { state, held[2] or '', held[3] or '' }
