-- ARGV: prefix of the keys, cap, size to trim to, then groups: users joined by ",", how many values, score, drop id, ...
local call = redis.call
local prefix, cap, low = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local at = 4
while at <= #ARGV do
  local last = at + 1 + tonumber(ARGV[at + 1])
  local entries = {unpack(ARGV, at + 2, last)}
  for user in string.gmatch(ARGV[at], '[^,]+') do
    local key = prefix .. user
    call('ZADD', key, unpack(entries))
    local size = call('ZCARD', key)
    if size > cap then call('ZREMRANGEBYRANK', key, 0, size - low - 1) end
  end
  at = last + 1
end
