-- Forgets users in a hash beside a home: whom its user follows, or to whom replies were judged; or whom its user hides.
--
-- Replies to erased users are in each home.
--
-- KEYS[1]  the hash
-- KEYS[2]  the home, which is not complete any more if a reply to one of them is in it or was left out; replies to hidden
--          users are left out, and nobody notes to whom they are
-- ARGV     the users, and fields of replies to them that came beside a rebuild: it does not judge these any more
-- returns  1
for _, user in ipairs(ARGV) do
  local value = redis.call('HGET', KEYS[1], user)
  if value == '0' or value == '2' or value == 'all' then redis.call('ZREM', KEYS[2], FLOOR) end
  redis.call('HDEL', KEYS[1], user)
end
return 1
