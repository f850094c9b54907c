-- Notes what is known of attempts at messages, once however often it is noted under one name.
--
-- KEYS     the messages (Redis Cluster: exactly one)
-- ARGV[1]  time to live, ms
-- ARGV[2+] for each message: name of the attempt; "begun" or "failed"
-- returns  for each message: how many attempts there were, this one included; how many of
--          the others never reported back
local noted = {}
for index, key in ipairs(KEYS) do
  local state = ARGV[2 * index + 1]
  redis.call('HSET', key, ARGV[2 * index], state)
  redis.call('PEXPIRE', key, ARGV[1])
  local states = redis.call('HVALS', key)
  local lost = state == 'begun' and -1 or 0
  for _, other in ipairs(states) do
    if other == 'begun' then lost = lost + 1 end
  end
  noted[2 * index - 1] = #states
  noted[2 * index] = lost
end
return noted
