-- Records deleted drops under their authors, and forgets old ones.
--
-- KEYS     none; in a Redis Cluster one of the parts that ARGV names, which are all on its node
-- ARGV[1]  prefix of the parts
-- ARGV[2]  prefix of the deleted drops, sorted sets by the time of deletion
-- ARGV[3]  how long a deletion is kept, ms
-- ARGV[4+] of each deletion: part, author, drop, time in ms
-- returns  1
local call, keep = redis.call, tonumber(ARGV[3])
local time = call('TIME')
local before = time[1] * 1000 - keep
for i = 4, #ARGV, 4 do
  local part, author = ARGV[i], ARGV[i + 1]
  local of, field = ARGV[1] .. part, author .. ':~deleted'
  local key = ARGV[2] .. part .. ':' .. author
  local noted = call('ZCARD', key) == 0 and string.match(call('HGET', of, field) or '', ':(%d+)$')
  -- Lost, and not expired: these alone must not pass for all. The mark of a refill stays.
  if noted and time[1] - noted < keep / 1000 - 60 and call('HGET', of, FLOOR) == '1' then
    call('HDEL', of, FLOOR)
  end
  call('ZADD', key, 'LT', ARGV[i + 3], ARGV[i + 2])
  call('ZREMRANGEBYSCORE', key, '-inf', '(' .. before)
  local newest = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  if newest then
    call('PEXPIRE', key, keep)
    -- So that a lost set is seen.
    call('HSET', of, field, '0:0:' .. math.floor(newest / 1000))
  end
end
return 1
