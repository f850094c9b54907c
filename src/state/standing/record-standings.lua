-- Records standings of users and hosts, of which the newest version of each is in force.
--
-- KEYS[1]  the standings: subject -> "version:standing:until", with until in ms, 0 for good; "~changes" -> number of
--          changes; "~born" -> a name that no such hash has had; "~complete" -> "1" if it has all that the users service has
-- KEYS[2]  subjects by the number of their last change
-- ARGV[1]  a name for the hash
-- ARGV[2]  "1": the hash is complete now
-- ARGV[3+] subject, version, standing, until, ...; a version "": the subject is to be read again
-- returns  number of changes made
local call, key, order = redis.call, KEYS[1], KEYS[2]

-- Versions have up to 19 digits, which a number of Lua would round.
local function is_newer(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

call('HSETNX', key, '~born', ARGV[1])
local made = 0
for i = 3, #ARGV, 4 do
  local subject, version = ARGV[i], ARGV[i + 1]
  local held = string.match(call('HGET', key, subject) or '', '^(%d+):')
  local is_touched = held and version == ''
  local is_new = version ~= '' and (not held or is_newer(version, held))
  if is_new then call('HSET', key, subject, version .. ':' .. ARGV[i + 2] .. ':' .. ARGV[i + 3]) end
  if is_new or is_touched then
    local changes = (call('HGET', key, '~changes') or 0) + 1
    call('HSET', key, '~changes', string.format('%d', changes))
    call('ZADD', order, string.format('%d', changes), subject)
    made = made + 1
  end
end
if ARGV[2] == '1' then call('HSET', key, COMPLETE, '1') end
return made
