-- Changes the state of an author in the registry of pulled authors: a hash of author -> "state:by:since", and
-- "~version" and "~born" -> the times of its last and first change, µs, which stay when the last author leaves.
--
-- KEYS[1]  the registry
-- ARGV[1]  the author
-- ARGV[2]  the value it must hold now; "": none
-- ARGV[3]  "state:by" of the new value, whose time is that of this server; "": the author leaves
-- ARGV[4]  cap on authors
-- returns  1; 0 if the value is another, or the registry is full
local key, author = KEYS[1], ARGV[1]
if (redis.call('HGET', key, author) or '') ~= ARGV[2] then return 0 end
local time = redis.call('TIME')
if ARGV[3] == '' then
  redis.call('HDEL', key, author)
elseif ARGV[2] == '' and redis.call('HLEN', key) > tonumber(ARGV[4]) + 1 then
  return 0
else
  redis.call('HSET', key, author, string.format('%s:%.0f', ARGV[3], time[1] * 1000 + math.floor(time[2] / 1000)))
end
local now = string.format('%.0f', time[1] * 1000000 + time[2])
redis.call('HSETNX', key, '~born', now)
redis.call('HSET', key, '~version', now)
return 1
