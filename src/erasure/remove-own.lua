-- Removes a user's drops from timelines.
--
-- KEYS[1]  the user's deleted drops
-- KEYS[2+] the timelines, or other sorted sets of drops
-- returns  how many drops each of them lost
local lost = {}
for at = 2, #KEYS do
  local both = redis.call('ZCARD', KEYS[1]) > 0 and redis.call('ZCARD', KEYS[at]) > 0
  local own = both and redis.call('ZINTER', 2, KEYS[at], KEYS[1]) or {}
  -- Lua passes about 8,000 values to a command.
  for i = 1, #own, 2000 do
    redis.call('ZREM', KEYS[at], unpack(own, i, math.min(i + 1999, #own)))
  end
  lost[#lost + 1] = #own
end
return lost
