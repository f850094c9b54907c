-- Keeps the books of a fan-out of many chunks: a hash of chunk id -> "1" done, "0" planned,
-- and "~recipients" -> how many users it is for, once the list of chunks is complete.
--
-- KEYS[1]  the fan-out
-- ARGV[1]  time to live, ms
-- ARGV[2]  how many users it is for, and all chunk ids follow; or "" and one chunk follows that is done
-- ARGV[3+] chunk ids
-- returns  { chunks, recipients } where every planned chunk is done, else { }
local key = KEYS[1]
local done = ARGV[2] == ''
for i = 3, #ARGV do
  if done then redis.call('HSET', key, ARGV[i], '1') else redis.call('HSETNX', key, ARGV[i], '0') end
end
if not done then redis.call('HSET', key, '~recipients', ARGV[2]) end
redis.call('PEXPIRE', key, ARGV[1])
local recipients = redis.call('HGET', key, '~recipients')
if not recipients then return {} end
local held = redis.call('HGETALL', key)
for i = 1, #held, 2 do
  if held[i + 1] == '0' and held[i] ~= '~recipients' then return {} end
end
return { #held / 2 - 1, tonumber(recipients) }
