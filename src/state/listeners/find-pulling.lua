-- Finds which of some users pull which authors.
--
-- KEYS     none; in a Redis Cluster one of the keys that ARGV names, which are all on its node
-- ARGV[1]  prefix of the keys of the users' sets of pulled authors
-- ARGV[2]  rest of each key, joined by ","
-- ARGV[3+] the authors
-- returns  the places, from 0, of the users whose sets are not known; then for each author those of who pull them
local places, place = { {} }, 0
for i = 3, #ARGV do places[i - 1] = {} end

local function look(key)
  local held = redis.call('SMISMEMBER', key, COMPLETE, unpack(ARGV, 3))
  local known = held[1] == 1
  if not known then table.insert(places[1], place) end
  for i = 2, known and #held or 1 do
    if held[i] == 1 then table.insert(places[i], place) end
  end
  place = place + 1
end

for rest in string.gmatch(ARGV[2], '[^,]+') do look(ARGV[1] .. rest) end
return places
