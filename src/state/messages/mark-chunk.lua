-- Records the progress of a fan-out of many chunks: a hash of chunk id -> when it was done, ms since the epoch, "0" if
-- it is only planned; and "~recipients" -> how many users it is for, once the list of chunks is complete;
-- and "~open" -> a planned chunk.
--
-- KEYS[1]  the fan-out
-- ARGV[1]  time to live, ms
-- ARGV[2]  how many users it is for, in all and by tier, and all chunk ids follow; or "" and one chunk follows that is
--          done
-- ARGV[3+] chunk ids
-- returns  the hash if every planned chunk is done, else { }
local key = KEYS[1]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local done = ARGV[2] == ''
for i = 3, #ARGV do
  if not done then
    redis.call('HSETNX', key, ARGV[i], '0')
  elseif (redis.call('HGET', key, ARGV[i]) or '0') == '0' then
    redis.call('HSET', key, ARGV[i], now)
  end
end
if not done then redis.call('HSET', key, '~recipients', ARGV[2]) end
redis.call('PEXPIRE', key, ARGV[1])
if redis.call('HEXISTS', key, '~recipients') == 0 then return {} end
-- While the chunk that was last found open is so, the others need not be read.
local open = redis.call('HGET', key, '~open')
if open and redis.call('HGET', key, open) == '0' then return {} end
redis.call('HDEL', key, '~open')
local held = redis.call('HGETALL', key)
for i = #held - 1, 1, -2 do
  if held[i + 1] == '0' and held[i] ~= '~recipients' then
    redis.call('HSET', key, '~open', held[i])
    return {}
  end
end
return held
