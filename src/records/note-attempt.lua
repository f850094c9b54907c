-- Notes what is known of attempts at messages, once however often it is noted under one name.
--
-- KEYS     the messages (Redis Cluster: exactly one)
-- ARGV[1]  time to live, ms
-- ARGV[2+] for each message: name of the attempt; "begun" (beside other messages), "alone" or "failed"
-- returns  for each message: how many attempts there were, this one included; how many of
--          the others never reported back; how many of these were beside other messages, which
--          the second number counts as one
local noted = {}
for index, key in ipairs(KEYS) do
  local state = ARGV[2 * index + 1]
  redis.call('HSET', key, ARGV[2 * index], state)
  redis.call('PEXPIRE', key, ARGV[1])
  local others = { begun = 0, alone = 0, failed = 0 }
  for _, one in ipairs(redis.call('HVALS', key)) do others[one] = others[one] + 1 end
  others[state] = others[state] - 1
  -- A second one beside other messages is not handled, but waits to be alone: both are one attempt.
  local lost = others.alone + math.min(others.begun, 1)
  local isNew = not (state == 'begun' and others.begun > 0)
  noted[3 * index - 2] = lost + others.failed + (isNew and 1 or 0)
  noted[3 * index - 1] = lost
  noted[3 * index] = others.begun
end
return noted
