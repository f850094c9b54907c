-- Makes it unknown whose drops a user does not see, and with it their home: the next read asks the users service.
--
-- KEYS[1]  the home
-- KEYS[2]  the hash of those whose drops the user does not see
-- ARGV[1]  user whose relation to the home's user has changed
-- ARGV[2]  "all" or "reposts": these are hidden now, the home goes, and while the users service is unavailable they stay
--          hidden; "": the home gets drops back
-- ARGV[3]  time to live of the hash, ms
-- returns  1
local call, home, hidden, hiding = redis.call, KEYS[1], KEYS[2], ARGV[2]
call('HDEL', hidden, '~state')
if hiding == '' then
  call('ZREM', home, '~floor')
  return 1
end
if call('HGET', hidden, ARGV[1]) ~= 'all' then call('HSET', hidden, ARGV[1], hiding) end
call('PEXPIRE', hidden, ARGV[3])
call('DEL', home)
return 1
