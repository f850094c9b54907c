-- Compares this server with its identity record, and updates the record.
--
-- A server that restarted or took over has another run id than the record, which survived in its data.
--
-- KEYS[1]  the record
-- ARGV[1]  deadline by this server's clock, ms; a later call is refused, since it vouches for the data
-- ARGV[2]  from when on events may not have been applied yet, ms; "": read only
-- ARGV[3]  "1": everything that was lost has been applied again
-- ARGV[4]  the state of the log, as one opaque string; "" if ARGV[2] is
-- returns  { "none", "", "" } without a record; { "same", from, log } or { "other", from, log } as it was
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the record came after its deadline')
end
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local held = redis.call('HMGET', KEYS[1], 'run', 'from', 'log')
local state = not held[1] and 'none' or held[1] == run and 'same' or 'other'
if ARGV[2] ~= '' and (state ~= 'other' or ARGV[3] == '1') then
  redis.call('HSET', KEYS[1], 'run', run, 'from', ARGV[2], 'log', ARGV[4])
end
return { state, held[2] or '', held[3] or '' }
