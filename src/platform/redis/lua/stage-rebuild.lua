-- Puts a part of what a rebuild writes aside, where no read sees it, until finish-rebuild takes it all at once.
--
-- KEYS[1]  the timeline
-- KEYS[2]  where the rebuild's parts are collected: a sorted set of this rebuild's own, in the timeline's slot
-- ARGV[1]  deadline by this server's clock, ms; later the call is refused
-- ARGV[2]  the rebuild's mark
-- ARGV[3]  time to live of what is put aside, ms
-- ARGV[4+] score, member, score, member, ...: "+" and a drop id to add, or "-" and one to remove, with a score below all others
-- returns  how many members are put aside by now; 0 where the mark is gone: none is any more
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then
  return redis.error_reply('LATE the rebuild came after its deadline')
end
local mark = redis.call('ZSCORE', KEYS[1], '~floor')
if not mark or tonumber(mark) ~= tonumber(ARGV[2]) then
  redis.call('DEL', KEYS[2])
  return 0
end
for i = 4, #ARGV, 2 do redis.call('ZADD', KEYS[2], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return redis.call('ZCARD', KEYS[2])
