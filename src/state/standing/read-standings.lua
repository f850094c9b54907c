-- Reads the standings that have changed.
--
-- KEYS[1]  the standings: see record-standings.lua
-- KEYS[2]  subjects by the number of their last change
-- ARGV[1]  name of the hash that the caller has read from
-- ARGV[2]  number of the last change that the caller knows of it
-- ARGV[3]  maximum number of subjects
-- returns  the name of the hash, or ""; "1" if it is complete; number of the last change returned; subject, value, ...
local call, key, order = redis.call, KEYS[1], KEYS[2]
local born, complete = unpack(call('HMGET', key, '~born', COMPLETE))
local since = born == ARGV[1] and ARGV[2] or '0'
local changed = call('ZRANGEBYSCORE', order, '(' .. since, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
local answer = { born or '', complete or '', changed[#changed] or since }
for i = 1, #changed, 2 do
  answer[#answer + 1] = changed[i]
  answer[#answer + 1] = call('HGET', key, changed[i]) or ''
end
return answer
