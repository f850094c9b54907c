-- Removes the drops of some users from timelines.
--
-- KEYS     the deleted drops of each user, then the timelines, or other sorted sets of drops
-- ARGV[1]  the number of users
-- returns  how many drops each timeline lost
local users = tonumber(ARGV[1])
local lost = {}
for at = users + 1, #KEYS do
  local count = 0
  for user = 1, redis.call('ZCARD', KEYS[at]) > 0 and users or 0 do
    local own = redis.call('ZINTER', 2, KEYS[at], KEYS[user])
    -- Lua passes about 8,000 values to a command.
    for i = 1, #own, 2000 do
      redis.call('ZREM', KEYS[at], unpack(own, i, math.min(i + 1999, #own)))
    end
    count = count + #own
  end
  lost[#lost + 1] = count
end
return lost
