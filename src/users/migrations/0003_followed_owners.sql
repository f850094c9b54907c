-- As before, and the event's owner is the followed user, the second part of the pair.
--
-- Sets whether a user follows another, with the count and the event, in one round trip. Where it is so already
-- nothing is written. Raises P0001 where more than p_most would be followed.
CREATE OR REPLACE FUNCTION users.set_following(
  p_follower text, p_following text, p_wanted boolean, p_most integer,
  p_pair text, p_subject text, p_traceparent text,
  OUT o_changed boolean, OUT o_version bigint
) LANGUAGE plpgsql AS $$
DECLARE
  v_now bigint := users.now_ms();
BEGIN
  SELECT f.active <> p_wanted, f.version INTO o_changed, o_version
  FROM users.followings f WHERE f.follower_id = p_follower AND f.following_id = p_following;
  IF NOT FOUND THEN
    o_changed := p_wanted;
    o_version := 0;
  END IF;
  IF NOT o_changed THEN RETURN; END IF;

  -- The row's lock orders the changes of a pair, and with them their events.
  IF p_wanted THEN
    INSERT INTO users.followings AS f (follower_id, following_id, version, active, changed_at)
    VALUES (p_follower, p_following, v_now, true, v_now)
    ON CONFLICT (follower_id, following_id) DO UPDATE
    SET version = GREATEST(f.version + 1, excluded.version), active = true, changed_at = excluded.changed_at
    WHERE NOT f.active
    RETURNING f.version INTO o_version;
  ELSE
    UPDATE users.followings f SET version = GREATEST(f.version + 1, v_now), active = false, changed_at = v_now
    WHERE f.follower_id = p_follower AND f.following_id = p_following AND f.active
    RETURNING f.version INTO o_version;
  END IF;
  IF NOT FOUND THEN
    -- Somebody did the same in the meantime.
    o_changed := false;
    SELECT f.version INTO o_version
    FROM users.followings f WHERE f.follower_id = p_follower AND f.following_id = p_following;
    RETURN;
  END IF;

  IF p_wanted THEN
    INSERT INTO users.following_counts AS c (user_id, following) VALUES (p_follower, 1)
    ON CONFLICT (user_id) DO UPDATE SET following = c.following + 1 WHERE c.following < p_most;
    IF NOT FOUND THEN RAISE EXCEPTION 'at most % can be followed', p_most; END IF;
  ELSE
    UPDATE users.following_counts c SET following = GREATEST(c.following - 1, 0) WHERE c.user_id = p_follower;
  END IF;

  INSERT INTO public.outbox (source, owner, key, subject, message_id, body, traceparent)
  VALUES ('users', split_part(p_pair, ':', 2), p_pair, p_subject, 'edge:' || p_pair || ':' || o_version,
    json_build_object('follower_id', p_follower, 'following_id', p_following, 'version', o_version,
      'following', p_wanted, 'changed_at', v_now),
    p_traceparent);
END $$;
