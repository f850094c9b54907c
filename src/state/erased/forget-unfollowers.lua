-- Forgets recent unfollowers of an author, and with the last one also its time, so that the empty set does not look lost.
--
-- KEYS[1]  the part of the follow edges whose floor covers them
-- KEYS[2]  the recent unfollowers
-- ARGV[1]  field of the part with the time when one was last recorded
-- ARGV[2+] the unfollowers to forget; none: all of them
-- returns  how many are left
local left = 0
if #ARGV == 1 then
  redis.call('DEL', KEYS[2])
else
  redis.call('ZREM', KEYS[2], unpack(ARGV, 2))
  left = redis.call('ZCARD', KEYS[2])
end
if left == 0 then redis.call('HDEL', KEYS[1], ARGV[1]) end
return left
