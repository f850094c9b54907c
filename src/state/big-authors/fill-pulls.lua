-- Fills the set of pulled authors whom a user follows, in two steps.
--
-- A change that comes between them removes the key. The second step needs no deadline: as long as the mark stands,
-- nothing has changed. Fills that overlap share the mark of the first; the one that ends first ends all.
--
-- KEYS[1]  the set
-- ARGV[1]  "begin"; "afresh", whatever is known; or "finish"
-- ARGV[2]  a mark that no fill has used before; "finish": the one that stood when this fill began
-- ARGV[3]  time to live of the key, ms
-- ARGV[4+] with "finish": the authors
-- returns  the mark that stands, nil if the set is known ("begin"); 1, 0 if the set is not known ("finish")
local call, key, step, mark = redis.call, KEYS[1], ARGV[1], ARGV[2]
if step ~= 'afresh' and call('SISMEMBER', key, COMPLETE) == 1 then return step == 'finish' and 1 or nil end
if step == 'finish' then
  if call('SISMEMBER', key, mark) == 0 then return 0 end
elseif step == 'begin' then
  -- Until the set is known it has no other member.
  mark = call('SRANDMEMBER', key) or mark
end
call('DEL', key)
call('SADD', key, step == 'finish' and COMPLETE or mark)
for i = 4, #ARGV do call('SADD', key, ARGV[i]) end
call('PEXPIRE', key, ARGV[3])
return step == 'finish' and 1 or mark
