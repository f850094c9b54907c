-- Tells which users do not see a drop: it is hidden from them, or a reply that their homes do not show.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  the author
-- ARGV[2]  of a repost: the author of the original; else ""
-- ARGV[3]  of a reply to somebody else: the author of its parent; else ""
-- ARGV[4]  "1": replies are judged by whom their users follow
-- ARGV[5]  prefix of the homes
-- ARGV[6]  rest of each home, joined by ","
-- returns  of each user 1 if the user does not see the drop, 0 if they do, -1 if it is not known what is hidden, -2 if
--          nothing is, and it is not known whom the user follows
local author, original, parent, prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[5]

local function look(token)
  if author == token then return 0 end
  local hidden = HIDDEN .. prefix .. token .. '}'
  local held = redis.call('HMGET', hidden, STATE, author, original, parent)
  if held[1] ~= 'complete' then return -1 end
  local is_hidden = held[2] == 'all' or (original ~= '' and (held[2] == 'reposts' or held[3] == 'all'))
  if is_hidden or (parent ~= '' and held[4] == 'all') then return 1 end
  if parent == '' or parent == token or ARGV[4] ~= '1' then return 0 end
  local state, value = unpack(redis.call('HMGET', FOLLOWS .. prefix .. token .. '}', STATE, parent))
  if state ~= 'complete' then return -2 end
  return (value == '1' or value == '2') and 0 or 1
end

local answers = {}
for token in string.gmatch(ARGV[6], '[^,]+') do answers[#answers + 1] = look(token) end
return answers
