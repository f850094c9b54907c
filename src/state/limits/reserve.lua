-- Makes a reservation in sliding windows: in each of them, unless one is full.
--
-- KEYS     the windows: reservations by the time they were made
-- ARGV[1]  the reservation; empty: only look
-- ARGV[2]  now, ms since the epoch; empty: the clock of Redis
-- ARGV[3+] for each window: its maximum number of reservations; its length, ms; for how many the reservation counts, which has
--          as many entries, numbered from the second on
-- returns  1 if the reservation is made, also by an earlier call, 0 if a window is full, 2 if a window is full only should
--          all writes under way count; for each window: how many reservations it holds, without those of writes under way
--          if that is what the refusal depends on; time until one of them, or if it is full until room for another, leaves
--          the window, ms: 0 if there is none

-- A reservation that begins with ~ is of a write under way, which may not count in the end. Later than this its process is
-- gone, and the reservation counts.
local UNDER_WAY_MS = 10000
local reservation, time = ARGV[1], redis.call('TIME')
local now = tonumber(ARGV[2]) or time[1] * 1000 + math.floor(time[2] / 1000)
local function sizes(index)
  return tonumber(ARGV[3 * index]), tonumber(ARGV[3 * index + 1]), tonumber(ARGV[3 * index + 2])
end
local taken, free, used = 0, reservation ~= '', {}
for index, key in ipairs(KEYS) do
  local room, window, count = sizes(index)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - window)
  used[index] = redis.call('ZCARD', key)
  if reservation ~= '' and redis.call('ZSCORE', key, reservation) then taken = 1 end
  free = free and used[index] + count <= room
end
if free and taken == 0 then
  taken = 1
  for index, key in ipairs(KEYS) do
    local _, window, count = sizes(index)
    redis.call('ZADD', key, now, reservation)
    for number = 2, count do redis.call('ZADD', key, now, reservation .. '.' .. number) end
    redis.call('PEXPIRE', key, window)
    used[index] = used[index] + count
  end
end
if not free and taken == 0 and reservation ~= '' then
  taken = 2
  for index, key in ipairs(KEYS) do
    local room, _, count = sizes(index)
    local late = used[index] + count > room and redis.call('ZRANGEBYSCORE', key, '(' .. now - UNDER_WAY_MS, '+inf') or {}
    for _, other in ipairs(late) do
      if string.sub(other, 1, 1) == '~' then used[index] = used[index] - 1 end
    end
    if used[index] + count > room then taken = 0 end
  end
end
local reply = { taken }
for index, key in ipairs(KEYS) do
  local room, window, count = sizes(index)
  local at = math.max(0, used[index] + (taken == 1 and 1 or count) - 1 - room)
  local first = redis.call('ZRANGE', key, at, at, 'WITHSCORES')[2]
  reply[2 * index], reply[2 * index + 1] = used[index], first and first + window - now or 0
end
return reply
