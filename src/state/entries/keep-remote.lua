-- Adds the remote drops of a snapshot to the set of remote drops, before finish-rebuild adds them to the timeline.
--
-- Remote drops that fan-out writes meanwhile stay in the set.
--
-- KEYS[1]  the timeline
-- KEYS[2]  the set of its remote drops
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused
-- ARGV[2]  the rebuild's mark
-- ARGV[3]  newest time of a remote drop that is left out because the share is used up, ms; 0: none is left out
-- ARGV[4+] score, drop id, score, drop id, ...
-- returns  1; 0 if the mark is gone
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the rebuild came after its deadline')
end
local mark = redis.call('ZSCORE', KEYS[1], FLOOR)
if not mark or tonumber(mark) ~= tonumber(ARGV[2]) then return 0 end
-- Lua passes about 8,000 values to a command.
for i = 4, #ARGV, 2000 do redis.call('ZADD', KEYS[2], unpack(ARGV, i, math.min(i + 1999, #ARGV))) end
redis.call('ZADD', KEYS[2], ARGV[3], FLOOR)
return 1
