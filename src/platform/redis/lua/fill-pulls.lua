-- Fills the set of pulled authors whom a user follows, in two steps.
--
-- A change that comes between them removes the key. The second step needs no deadline: as long as the mark is there,
-- nothing has changed.
--
-- KEYS[1]  the set
-- ARGV[1]  the mark of this fill, a member that no other fill uses
-- ARGV[2]  time to live of the key, ms
-- ARGV[3]  "begin" plants the mark unless the set is known, "afresh" whatever it is, "finish" replaces the mark
-- ARGV[4+] with "finish": the authors
-- returns  1; 0 where the set is known ("begin") or the mark is gone ("finish")
local call, key, mark = redis.call, KEYS[1], ARGV[1]
if ARGV[3] == 'finish' then
  if call('SISMEMBER', key, mark) == 0 then return 0 end
  mark = '~complete'
elseif ARGV[3] == 'begin' and call('SISMEMBER', key, '~complete') == 1 then
  return 0
end
call('DEL', key)
call('SADD', key, mark)
for i = 4, #ARGV do call('SADD', key, ARGV[i]) end
call('PEXPIRE', key, ARGV[2])
return 1
