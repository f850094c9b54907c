-- Notes what is known of an attempt at a message, once however often it is noted under one name.
--
-- KEYS[1]  the message
-- ARGV[1]  time to live, ms
-- ARGV[2]  name of the attempt
-- ARGV[3]  "begun" or "failed"
-- returns  { how many attempts there were, this one included; how many of the others never reported back }
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local lost = ARGV[3] == 'begun' and -1 or 0
for _, state in ipairs(redis.call('HVALS', KEYS[1])) do
  if state == 'begun' then lost = lost + 1 end
end
return { redis.call('HLEN', KEYS[1]), lost }
