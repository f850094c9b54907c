-- Notes that users are seen now, where they are still listed: a listing that has ended is not prolonged.
--
-- KEYS[1]  users who listen now or did lately
-- ARGV[1]  now, ms since the epoch
-- ARGV[2]  a user seen before this time is not listed any more, ms since the epoch
-- ARGV[3+] users, encoded
-- returns  for each user 1 if listed, else 0
local now, listed_since = ARGV[1], tonumber(ARGV[2])
local listed = {}
for at = 3, #ARGV do
  local seen = redis.call('ZSCORE', KEYS[1], ARGV[at])
  local is_listed = seen and tonumber(seen) >= listed_since
  if is_listed then redis.call('ZADD', KEYS[1], now, ARGV[at]) end
  listed[#listed + 1] = is_listed and 1 or 0
end
return listed
