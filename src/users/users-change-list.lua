-- Changes what is remembered of a list of users, in place.
--
-- KEYS[1]  the list
-- KEYS[2]  how long it is
-- KEYS[3]  its generation, which begins with the run id of the server that made it
-- ARGV[1]  the generation that stood before the change was read
-- ARGV[2]  a name nobody else uses, for the generation from now on
-- ARGV[3]  time to live of the generation, ms
-- ARGV[4]  how long the list is
-- ARGV[5]  the revision at which that was counted
-- ARGV[6]  a longer list than this is forgotten
-- ARGV[7]  how many ids follow that are on the list
-- ARGV[8+] those, then ids that are not
-- returns  1; 0 where the list changed otherwise meanwhile, and was forgotten
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local held = redis.call('GET', KEYS[3])
redis.call('SET', KEYS[3], run .. ':' .. ARGV[2], 'PX', ARGV[3])
if not held or string.sub(held, 1, #run) ~= run then
  redis.call('DEL', KEYS[1], KEYS[2])
  return 0
end
local counted = redis.call('HGET', KEYS[2], 'revision')
if counted and tonumber(counted) < tonumber(ARGV[5]) then
  redis.call('HSET', KEYS[2], 'total', ARGV[4], 'revision', ARGV[5])
end
if held ~= ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 0
end
if not redis.call('ZSCORE', KEYS[1], '') then return 1 end
local present = 7 + tonumber(ARGV[7])
for i = 8, present do redis.call('ZADD', KEYS[1], 0, ARGV[i]) end
for i = present + 1, #ARGV do redis.call('ZREM', KEYS[1], ARGV[i]) end
if redis.call('ZCARD', KEYS[1]) - 1 > tonumber(ARGV[6]) then redis.call('DEL', KEYS[1]) end
return 1
