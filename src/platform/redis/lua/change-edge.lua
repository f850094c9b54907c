-- Remembers the newest version of a follow edge.
--
-- KEYS[1]  the edge, held as "version:state"
-- ARGV[1]  version
-- ARGV[2]  "1": follows, "0": does not
-- ARGV[3]  time to live, ms
-- returns  { version, state } that is in force; of two that name one version, the unfollow is
local held = redis.call('GET', KEYS[1])
local version, state = ARGV[1], ARGV[2]
if held then
  local v, s = string.match(held, '^(%d+):(%d)$')
  local newer = tonumber(v) > tonumber(version)
  if newer or (tonumber(v) == tonumber(version) and s == '0') then version, state = v, s end
end
redis.call('SET', KEYS[1], version .. ':' .. state, 'PX', ARGV[3])
return { version, state }
