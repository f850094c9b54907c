-- Tells which users do not see a drop.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  the author
-- ARGV[2]  of a repost: the author of the original; else ""
-- ARGV[3]  prefix of the homes
-- ARGV[4]  rest of each home, joined by ","
-- returns  of each user 1 if the drop is hidden, 0 if it is not, -1 if that is not known
local author, original, prefix = ARGV[1], ARGV[2], ARGV[3]

local function look(token)
  if author == token then return 0 end
  local hidden = HIDDEN .. prefix .. token .. '}'
  local held = redis.call('HMGET', hidden, STATE, author, original)
  if held[1] ~= 'complete' then return -1 end
  local is_hidden = held[2] == 'all' or (original ~= '' and (held[2] == 'reposts' or held[3] == 'all'))
  return is_hidden and 1 or 0
end

local answers = {}
for token in string.gmatch(ARGV[4], '[^,]+') do answers[#answers + 1] = look(token) end
return answers
