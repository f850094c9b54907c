-- Who follows whom, kept twice: as whom a user follows, written when they follow, and as who follows a user, applied
-- from a stream afterwards. So that being followed by very many never makes anybody wait who follows.
CREATE SCHEMA users;

-- ms since the epoch, by the database's clock
CREATE FUNCTION users.now_ms() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

CREATE TABLE users.profiles (
  user_id text COLLATE "C" PRIMARY KEY,
  display_name text NOT NULL,
  bio text NOT NULL,
  avatar_url text NOT NULL,
  updated_at bigint NOT NULL
);

CREATE TABLE users.followings (
  follower_id text COLLATE "C" NOT NULL,
  following_id text COLLATE "C" NOT NULL,
  -- Monotonic per pair. It starts from the time, so that it goes on rising where an inactive edge was pruned.
  version bigint NOT NULL,
  active boolean NOT NULL,
  changed_at bigint NOT NULL,
  PRIMARY KEY (follower_id, following_id)
);
CREATE INDEX followings_inactive ON users.followings (changed_at) WHERE NOT active;

CREATE TABLE users.following_counts (
  user_id text COLLATE "C" PRIMARY KEY,
  following integer NOT NULL CHECK (following >= 0)
) WITH (fillfactor = 70);

CREATE TABLE users.followers (
  following_id text COLLATE "C" NOT NULL,
  follower_id text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  active boolean NOT NULL,
  -- By how much the last change moved the count.
  delta smallint NOT NULL,
  -- When it was applied, so that both lists show it: not when it was asked for.
  changed_at bigint NOT NULL,
  PRIMARY KEY (following_id, follower_id)
) PARTITION BY HASH (following_id);

DO $$
BEGIN
  FOR part IN 0..15 LOOP
    EXECUTE format(
      'CREATE TABLE users.followers_%s PARTITION OF users.followers FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
      part, part);
  END LOOP;
END $$;

CREATE INDEX followers_changed ON users.followers (changed_at, following_id, follower_id);
CREATE INDEX followers_inactive ON users.followers (changed_at) WHERE NOT active;

CREATE TABLE users.follower_counts (
  user_id text COLLATE "C" PRIMARY KEY,
  followers bigint NOT NULL CHECK (followers >= 0),
  -- The sum of the deltas of the last change.
  delta bigint NOT NULL,
  -- Rises with every change; of two counts the one with the higher revision is the newer.
  revision bigint NOT NULL
) WITH (fillfactor = 70);

-- Sets whether a user follows another, with the count and the event, in one round trip. Where it is so already
-- nothing is written. Raises P0001 where more than p_most would be followed.
CREATE FUNCTION users.set_following(
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

  INSERT INTO public.outbox (source, key, subject, message_id, body, traceparent)
  VALUES ('users', p_pair, p_subject, 'edge:' || p_pair || ':' || o_version,
    json_build_object('follower_id', p_follower, 'following_id', p_following, 'version', o_version,
      'following', p_wanted, 'changed_at', v_now),
    p_traceparent);
END $$;
