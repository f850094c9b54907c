-- Finds the tombstoned drops of many timelines in one call; a single server only.
--
-- KEYS[1]  the tombstones
-- ARGV     the timelines
-- returns  of each timeline its tombstoned drops; false if the tombstones were lost and must be refilled
local floor = redis.call('ZSCORE', KEYS[1], '~floor')
if not floor or tonumber(floor) < 0 then return false end
local found = {}
for i, key in ipairs(ARGV) do
  found[i] = {}
  for _, drop in ipairs(redis.call('ZINTER', 2, key, KEYS[1])) do
    -- Both keys have one.
    if drop ~= '~floor' then table.insert(found[i], drop) end
  end
end
return found
