-- Runs a command, or a script in its place, that has met a key of a wrong type, and removes each such key as it is met.
--
-- A key that is removed counts as missing. wrong-types.ts puts the script here.
--
-- KEYS     those of the command or the script
-- ARGV     the command and its arguments, or those of the script
-- returns  { the keys that were removed, what the command or the script returns }
local removed = {}
local redis = {
  pcall = redis.pcall,
  error_reply = redis.error_reply,
  -- A command that fails has changed nothing, so it may be run again: it raises its error, or the key is gone.
  call = function(...)
    local reply = redis.pcall(...)
    if type(reply) ~= 'table' or not reply.err then return reply end
    if string.find(reply.err, 'WRONGTYPE', 1, true) then
      local key = select(2, ...)
      if redis.call('UNLINK', key) == 1 then removed[#removed + 1] = key end
    end
    return redis.call(...)
  end,
}

local function run()
  return redis.call(unpack(ARGV))
end

local result = run()
if type(result) == 'table' and result.err then return result end
return { removed, result }
