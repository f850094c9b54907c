-- Records the newest versions of follow edges, and recent unfollowers.
--
-- A part is a hash: "author:follower" -> "version:state:seconds", "author:" -> "0:0:seconds" of its last recorded
-- unfollower, "~floor" -> "1" if the part is complete, "~sweep" -> cursor of the removal of old fields.
--
-- KEYS     none; in a Redis Cluster one of the parts that ARGV names, which are all on its node
-- ARGV[1]  prefix of the parts
-- ARGV[2]  prefix of the recent unfollowers, sorted sets by the time of recording; no two at one time
-- ARGV[3]  how long an edge is kept, ms
-- ARGV[4]  "record"; "refill": the part is being refilled, and need not be complete; "look": nothing is recorded;
--          "replace": recorded also if a newer version is in force
-- ARGV[5+] of each edge: part, author, follower, version, "1" for a follow or "0"
-- returns  of each edge { version; state } in force, "" and "" if the part was lost and nothing is recorded;
--          of two changes that name one version, the unfollow is in force
local call = redis.call
local keep, refilling, looking, replacing = tonumber(ARGV[3]), ARGV[4] == 'refill', ARGV[4] == 'look', ARGV[4] == 'replace'
local time = call('TIME')
local seconds, now = tonumber(time[1]), time[1] * 1000 + math.floor(time[2] / 1000)

local function record_unfollower(key, part, author, follower)
  local newest = call('ZRANGE', key, -1, -1, 'WITHSCORES')
  local noted = not newest[2] and string.match(call('HGET', part, author .. ':') or '', ':(%d+)$')
  -- Lost, and not expired: this one alone must not pass for all. The mark of a refill stays.
  if noted and seconds - noted < keep / 1000 - 60 and call('HGET', part, FLOOR) == '1' then
    call('HDEL', part, FLOOR)
  end
  local at = newest[2] and math.max(now, tonumber(newest[2]) + 1) or now
  call('ZADD', key, at, follower)
  call('ZREMRANGEBYSCORE', key, '-inf', '(' .. (now - keep))
  call('PEXPIRE', key, keep)
  call('HSET', part, author .. ':', '0:0:' .. seconds)
end

-- A field cannot expire by itself. One change in eight looks at some twenty: two and a half for each that may be new.
local function forget(part)
  local step = call('HSCAN', part, call('HGET', part, '~sweep') or '0', 'COUNT', 20)
  for i = 1, #step[2], 2 do
    local noted = string.match(step[2][i + 1], ':(%d+)$')
    if noted and seconds - tonumber(noted) > keep / 1000 then call('HDEL', part, step[2][i]) end
  end
  call('HSET', part, '~sweep', step[1])
end

-- Versions have up to 19 digits, which a number of Lua would round. -1 asks for any version.
local function is_newer(a, b)
  if b == '-1' then return true end
  if #a ~= #b then return #a > #b end
  return a > b
end

local result = {}
for i = 5, #ARGV, 5 do
  local part, author, follower = ARGV[1] .. ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local version, state = ARGV[i + 3], ARGV[i + 4]
  if not refilling and call('HGET', part, FLOOR) ~= '1' then
    version, state = '', ''
  else
    -- First, so that a process that finds the edge gone finds the unfollower too.
    if state == '0' and not looking then record_unfollower(ARGV[2] .. ARGV[i] .. ':' .. author, part, author, follower) end
    local field = author .. ':' .. follower
    local v, s = string.match(call('HGET', part, field) or '', '^(%d+):(%d)')
    if v and not replacing and (is_newer(v, version) or (v == version and s == '0')) then
      version, state = v, s
    end
    if not looking then
      call('HSET', part, field, version .. ':' .. state .. ':' .. seconds)
      if not refilling and (time[2] + i) % 8 == 0 then forget(part) end
    end
  end
  result[#result + 1] = { version, state }
end
return result
