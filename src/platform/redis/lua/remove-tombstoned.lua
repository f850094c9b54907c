-- Removes tombstoned drops from many timelines in one call; a single server only.
--
-- KEYS[1]  the tombstones
-- ARGV[1]  prefix of the timelines
-- ARGV[2+] rest of each key
-- returns  1; 0 if the tombstones were lost and must be refilled: then nothing is removed
local call = redis.call
local floor = call('ZSCORE', KEYS[1], '~floor')
if not floor or tonumber(floor) < 0 then return 0 end
for i = 2, #ARGV do
  local key = ARGV[1] .. ARGV[i]
  for _, drop in ipairs(call('ZINTER', 2, key, KEYS[1])) do
    -- Both keys have one.
    if drop ~= '~floor' then call('ZREM', key, drop) end
  end
end
return 1
