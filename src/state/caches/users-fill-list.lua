-- Stores what was read of a list of users, unless it has changed since.
--
-- KEYS[1]  the list
-- KEYS[2]  how long it is
-- KEYS[3]  its generation, which begins with the run id of the server that made it
-- ARGV[1]  the generation that stood before it was read
-- ARGV[2]  time to live of what is stored, ms
-- ARGV[3]  how long it is, if the list itself is too long to be stored; else ""
-- ARGV[4+] the ids of the whole list
-- returns  1; 0 if another generation stands, or none: the list may have changed
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if redis.call('GET', KEYS[3]) ~= ARGV[1] or string.sub(ARGV[1], 1, #run) ~= run then return 0 end
-- The list is valid for as long as its generation is there.
redis.call('PEXPIRE', KEYS[3], ARGV[2])
if ARGV[3] ~= '' then
  -- A process of an earlier version changes a total whose revision is lower than that of its change.
  redis.call('HSET', KEYS[2], 'total', ARGV[3], 'revision', 0)
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  return 1
end
redis.call('DEL', KEYS[1])
local entries = { 0, '' }
for i = 4, #ARGV do
  entries[#entries + 1] = 0
  entries[#entries + 1] = ARGV[i]
  -- Lua limits the number of arguments of a call.
  if #entries >= 2000 then
    redis.call('ZADD', KEYS[1], unpack(entries))
    entries = {}
  end
end
if #entries > 0 then redis.call('ZADD', KEYS[1], unpack(entries)) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
