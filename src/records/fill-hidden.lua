-- Fills the hash of those whose drops a user does not see, in two steps.
--
-- A change that comes between them removes the mark. Until the hash is complete it has what was known before. Where it
-- was incomplete and has somebody now, the home may have their drops: it is not complete any more.
--
-- KEYS[1]  the hash: user -> "all" or "reposts"; ~state -> "complete", or the mark of a fill
-- KEYS[2]  the home
-- ARGV[1]  "begin" or "finish"
-- ARGV[2]  a mark that no fill has used before; "finish": the one that stood when this fill began
-- ARGV[3]  time to live of the key, ms
-- ARGV[4+] with "finish": user, "all" or "reposts", ...
-- returns  "begin": the mark that stands, nil where the hash is complete; "finish": 1, or 0 where the mark is gone
local call, key, step, mark = redis.call, KEYS[1], ARGV[1], ARGV[2]
local state = call('HGET', key, '~state')
if step == 'begin' then
  if state == 'complete' then return nil end
  if state then return state end
  call('HSET', key, '~state', mark)
  call('PEXPIRE', key, ARGV[3])
  return mark
end
if state == 'complete' then return 1 end
if state ~= mark then return 0 end
call('DEL', key)
call('HSET', key, '~state', 'complete')
-- Lua passes about 8,000 values to a command.
for i = 4, #ARGV, 2000 do call('HSET', key, unpack(ARGV, i, math.min(i + 1999, #ARGV))) end
call('PEXPIRE', key, ARGV[3])
if ARGV[4] then call('ZREM', KEYS[2], '~floor') end
return 1
