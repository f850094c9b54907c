-- Reads a page of a list of users, and how long it is.
--
-- KEYS[1]  the list, a sorted set of one score; its member "" says that it is whole, so that empty ones are known too
-- KEYS[2]  how long it is, where that was counted
-- KEYS[3]  its generation, which begins with the run id of the server that made it
-- ARGV[1]  "(" and the id to go on after
-- ARGV[2]  maximum number of ids
-- ARGV[3]  a name nobody else uses, for the generation if there is none
-- ARGV[4]  its time to live, ms
-- returns  { generation, 1 if the list is held, its length or -1 if it is not known, { id, id, ... } }
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local generation = redis.call('GET', KEYS[3])
-- A server that was started again or took over may have lost changes: it begins anew.
if not generation or string.sub(generation, 1, #run) ~= run then
  generation = run .. ':' .. ARGV[3]
  redis.call('SET', KEYS[3], generation, 'PX', ARGV[4])
  redis.call('DEL', KEYS[1], KEYS[2])
  return { generation, 0, -1, {} }
end
if redis.call('ZSCORE', KEYS[1], '') then
  local ids = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
  return { generation, 1, redis.call('ZCARD', KEYS[1]) - 1, ids }
end
return { generation, 0, tonumber(redis.call('HGET', KEYS[2], 'total') or -1), {} }
