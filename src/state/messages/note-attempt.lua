-- Notes attempts at messages, each once, however often it is noted under its name.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  time to live, ms
-- ARGV[2+] for each message: its key; name of the attempt; "begun" (beside other messages), "alone" or "failed"
-- returns  for each message { number of attempts, this one included; number of
--          the others never reported back; how many of these were beside other messages, which
--          the second number counts as one }
local noted = {}
for i = 2, #ARGV, 3 do
  local key, state = ARGV[i], ARGV[i + 2]
  redis.call('HSET', key, ARGV[i + 1], state)
  redis.call('PEXPIRE', key, ARGV[1])
  local others = { begun = 0, alone = 0, failed = 0 }
  for _, one in ipairs(redis.call('HVALS', key)) do others[one] = others[one] + 1 end
  others[state] = others[state] - 1
  -- A second one beside other messages is not handled, but waits to be alone: both are one attempt.
  local lost = others.alone + math.min(others.begun, 1)
  local isNew = not (state == 'begun' and others.begun > 0)
  noted[#noted + 1] = { lost + others.failed + (isNew and 1 or 0), lost, others.begun }
end
return noted
