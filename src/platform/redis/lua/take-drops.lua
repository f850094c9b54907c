-- Notes drops that are taken out of a timeline, for the fan-out of their deletions, which still has to look who had them.
--
-- KEYS[1]  the timeline
-- KEYS[2]  the drops taken out of it lately, by when; only those it held are noted
-- ARGV[1]  how long they are kept, ms
-- ARGV[2]  "remove": they go now; "note": the caller removes them next
-- ARGV[3+] the drops
-- returns  how many of them the timeline held
local call, timeline, taken = redis.call, KEYS[1], KEYS[2]
local time = call('TIME')
local now, keep, held = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[1]), 0
for i = 3, #ARGV do
  if call('ZSCORE', timeline, ARGV[i]) then
    call('ZADD', taken, now, ARGV[i])
    if ARGV[2] == 'remove' then call('ZREM', timeline, ARGV[i]) end
    held = held + 1
  end
end
if held > 0 then
  call('ZREMRANGEBYSCORE', taken, '-inf', now - keep)
  call('PEXPIRE', taken, keep)
end
return held
