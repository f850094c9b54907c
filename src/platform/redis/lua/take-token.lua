-- Takes a token of a bucket or says how long to wait, and may hold the bucket back for a time.
--
-- KEYS[1]  the bucket: parts, the time they are of, until when it is held back
-- ARGV[1]  tokens added in an hour
-- ARGV[2]  most tokens it holds
-- ARGV[3]  tokens to take: 1, or 0 to look
-- ARGV[4]  nobody takes any for this many ms; 0: unchanged. It never becomes shorter
-- ARGV[5]  time, ms since the epoch; unset: the clock of Redis
-- returns  ms to wait, 0 where it is taken; whole tokens left

-- A token has as many parts as an hour has milliseconds: each millisecond adds whole parts, as many as an
-- hour adds tokens.
local TOKEN = 3600000
local MARGIN = 60000
local rate, most = tonumber(ARGV[1]), ARGV[2] * TOKEN
local wanted, hold = ARGV[3] * TOKEN, tonumber(ARGV[4])
local time = redis.call('TIME')
local now = tonumber(ARGV[5]) or time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call('HMGET', KEYS[1], 'parts', 'at', 'held')
local parts = most
if stored[1] then
  -- A clock that goes back adds none.
  parts = math.min(most, stored[1] + math.max(0, now - stored[2]) * rate)
end
local held = math.max(tonumber(stored[3] or 0), hold > 0 and now + hold or 0)
local wait = math.max(0, held - now, math.ceil((wanted - parts) / rate))
if wait == 0 then parts = parts - wanted end
redis.call('HSET', KEYS[1], 'parts', parts, 'at', now, 'held', held)
redis.call('PEXPIRE', KEYS[1], math.max(math.ceil((most - parts) / rate), held - now) + MARGIN)
return { wait, math.floor(parts / TOKEN) }
