-- Makes rebuilds under way start over, since they may have read outdated followings, and changes the copies of users'
-- followings.
--
-- A home becomes incomplete if a follow of somebody changes to whom a reply is in the home, or was left out of it.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  "1": homes without a copy are not complete
-- ARGV[2]  prefix of the keys
-- ARGV[3]  rest of each key, joined by ","
-- ARGV[4+] changed follows of each key, joined by ",": "1" for a follow or "0", and the token of the followed user
-- returns  for each timeline { the floor before, or ""; the score of its oldest drop, or "" }
local call, result = redis.call, {}

-- Returns true if the home is no longer complete.
local function change(follows, is_follow, token)
  local held = call('HMGET', follows, STATE, token, LEFT)
  local value = held[2] or ''
  if held[1] ~= 'complete' then return ARGV[1] == '1' end
  if is_follow == (value == '1' or value == '2') then return false end
  if is_follow then
    call('HSET', follows, token, '1')
    return value == '0' or tonumber(held[3] or 0) >= tonumber(MOST_LEFT)
  end
  call('HDEL', follows, token)
  return value == '2'
end

local function interrupt(key, changes)
  local floor, is_over = call('ZSCORE', key, FLOOR), false
  for state, token in string.gmatch(changes, '([01])([^,]+)') do
    is_over = change(FOLLOWS .. key .. '}', state == '1', token) or is_over
  end
  if floor and (tonumber(floor) < 0 or is_over) then call('ZREM', key, FLOOR) end
  if floor and tonumber(floor) < 0 then floor = nil end
  local first = call('ZRANGE', key, 0, 1, 'WITHSCORES')
  local oldest = first[1] == FLOOR and first[4] or first[1] ~= FLOOR and first[2]
  result[#result + 1] = { floor or '', oldest or '' }
end

for rest in string.gmatch(ARGV[3], '[^,]+') do interrupt(ARGV[2] .. rest, ARGV[#result + 4] or '') end
return result
