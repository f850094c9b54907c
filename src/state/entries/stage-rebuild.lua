-- Stores a part of a rebuild in keys that no read uses, until finish-rebuild moves all parts at once.
--
-- KEYS[1]  the timeline
-- KEYS[2]  entries to add, in a sorted set of this rebuild, in the timeline's slot
-- KEYS[3]  drops to remove, likewise
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused
-- ARGV[2]  the rebuild's mark
-- ARGV[3]  time to live of these two keys, ms
-- ARGV[4]  number of drop ids that follow and are to be removed
-- ARGV[5+] those ids, then score, drop id, score, drop id, ... to be added
-- returns  number of drops stored by now; 0 if the mark is gone: the keys are removed
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the rebuild came after its deadline')
end
local key, adds, removals, gone = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[4])
local mark = redis.call('ZSCORE', key, FLOOR)
if not mark or tonumber(mark) ~= tonumber(ARGV[2]) then
  redis.call('DEL', adds, removals)
  return 0
end
for i = 5, 4 + gone do redis.call('ZADD', removals, 0, ARGV[i]) end
-- Many at once: each command from Lua costs more than an entry. Lua passes about 8,000 values to a command.
for i = 5 + gone, #ARGV, 2000 do redis.call('ZADD', adds, unpack(ARGV, i, math.min(i + 1999, #ARGV))) end
redis.call('PEXPIRE', adds, ARGV[3])
redis.call('PEXPIRE', removals, ARGV[3])
return redis.call('ZCARD', adds) + redis.call('ZCARD', removals)
