-- Takes a token of a bucket or says how long to wait, and may hold the bucket back for a time.
--
-- KEYS[1]  the bucket: parts, the time they are of, until when it is held back
-- KEYS[2]  users by the tokens they took since the first one of this hour
-- KEYS[3]  users who wait, by the time they were last told so
-- ARGV[1]  tokens added in an hour
-- ARGV[2]  most tokens it holds
-- ARGV[3]  tokens to take, or 0 to look
-- ARGV[4]  nobody takes any for this many ms; 0: unchanged. It never becomes shorter
-- ARGV[5]  time, ms since the epoch; empty: the clock of Redis
-- ARGV[6]  the user; unset: nobody takes turns, and KEYS[2] and KEYS[3] are not used
-- returns  ms to wait, 0 where it is taken; whole tokens left

-- A token has as many parts as an hour has milliseconds: each millisecond adds whole parts, as many as an
-- hour adds tokens.
local TOKEN = 3600000
local MARGIN = 60000
-- Longer than a process holds a message that waits.
local WAITS = 60000
local MAX_WAITING = 100
local rate, most = tonumber(ARGV[1]), ARGV[2] * TOKEN
local wanted, hold, user = ARGV[3] * TOKEN, tonumber(ARGV[4]), ARGV[6] or ''
local time = redis.call('TIME')
local now = tonumber(ARGV[5] or '') or time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call('HMGET', KEYS[1], 'parts', 'at', 'held')
local parts = most
if stored[1] then
  -- A clock that goes back adds none.
  parts = math.min(most, stored[1] + math.max(0, now - stored[2]) * rate)
end
local held = math.max(tonumber(stored[3] or 0), hold > 0 and now + hold or 0)

-- A token is left for each user who waits and took fewer than the asker.
local left_for_others = 0
if user ~= '' and wanted > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - WAITS)
  local mine = tonumber(redis.call('ZSCORE', KEYS[2], user) or 0)
  for _, other in ipairs(redis.call('ZRANGE', KEYS[3], 0, MAX_WAITING - 1)) do
    if other ~= user and tonumber(redis.call('ZSCORE', KEYS[2], other) or 0) < mine then
      left_for_others = left_for_others + 1
    end
  end
end
local needed = wanted + left_for_others * TOKEN
local wait = math.max(0, held - now, math.ceil((needed - parts) / rate))
if wait == 0 then parts = parts - wanted end
if user ~= '' and wanted > 0 then
  if wait == 0 then
    redis.call('ZREM', KEYS[3], user)
    redis.call('ZINCRBY', KEYS[2], wanted / TOKEN, user)
    if redis.call('PTTL', KEYS[2]) < 0 then redis.call('PEXPIRE', KEYS[2], TOKEN) end
  else
    redis.call('ZADD', KEYS[3], now, user)
    redis.call('PEXPIRE', KEYS[3], WAITS)
  end
end
redis.call('HSET', KEYS[1], 'parts', parts, 'at', now, 'held', held)
redis.call('PEXPIRE', KEYS[1], math.max(math.ceil((most - parts) / rate), held - now) + MARGIN)
return { wait, math.floor(parts / TOKEN) }
