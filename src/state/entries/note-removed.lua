-- Notes drops that are removed from a timeline, so that the fan-out of their deletions finds the homes that had them.
--
-- KEYS[1]  the timeline
-- KEYS[2]  the drops removed from it lately, by time of removal; only those it held are noted
-- ARGV[1]  time for which the notes are kept, ms
-- ARGV[2]  "remove": this script removes them; "note": the caller removes them next
-- ARGV[3+] the drops
-- returns  number of them that the timeline held
local call, timeline, notes = redis.call, KEYS[1], KEYS[2]
local time = call('TIME')
local now, keep, held = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[1]), 0
for i = 3, #ARGV do
  if call('ZSCORE', timeline, ARGV[i]) then
    call('ZADD', notes, now, ARGV[i])
    if ARGV[2] == 'remove' then call('ZREM', timeline, ARGV[i]) end
    held = held + 1
  end
end
if held > 0 then
  call('ZREMRANGEBYSCORE', notes, '-inf', now - keep)
  call('PEXPIRE', notes, keep)
end
return held
