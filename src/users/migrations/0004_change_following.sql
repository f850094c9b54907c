-- Sets whether a user follows another, with the count. The statement that calls it writes the event. Where it is so
-- already nothing is written. Raises P0001 where more than p_most would be followed. users.set_following, which writes
-- the event itself, stays for processes of the version before.
CREATE FUNCTION users.change_following(
  p_follower text, p_following text, p_wanted boolean, p_most integer,
  OUT o_changed boolean, OUT o_version bigint, OUT o_changed_at bigint
) LANGUAGE plpgsql AS $$
BEGIN
  o_changed_at := users.now_ms();
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
    VALUES (p_follower, p_following, o_changed_at, true, o_changed_at)
    ON CONFLICT (follower_id, following_id) DO UPDATE
    SET version = GREATEST(f.version + 1, excluded.version), active = true, changed_at = excluded.changed_at
    WHERE NOT f.active
    RETURNING f.version INTO o_version;
  ELSE
    UPDATE users.followings f SET version = GREATEST(f.version + 1, o_changed_at), active = false, changed_at = o_changed_at
    WHERE f.follower_id = p_follower AND f.following_id = p_following AND f.active
    RETURNING f.version INTO o_version;
  END IF;
  IF NOT FOUND THEN
    -- Another transaction made the same change in the meantime.
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
END $$;
