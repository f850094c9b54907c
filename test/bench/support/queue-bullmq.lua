-- ARGV: prefix of the keys, cap, size to trim to, score, drop id, users
local call = redis.call
local prefix, cap, low = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
for n = 6, #ARGV do
  local key = prefix .. ARGV[n]
  call('ZADD', key, ARGV[4], ARGV[5])
  local size = call('ZCARD', key)
  if size > cap then call('ZREMRANGEBYRANK', key, 0, size - low - 1) end
end
return #ARGV - 5
