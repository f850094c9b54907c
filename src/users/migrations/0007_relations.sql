-- Blocks and mutes, and dated lists of follows. Processes of the version before go on working: they name none of the
-- new columns, and follow in spite of a block.
CREATE TABLE users.relations (
  user_id text COLLATE "C" NOT NULL,
  target_id text COLLATE "C" NOT NULL,
  -- 1 is a block, 2 a mute, as in the enum RelationKind of users.proto.
  kind smallint NOT NULL,
  -- Monotonic per pair and kind. It starts from the time, so that it goes on rising where an inactive row was pruned.
  version bigint NOT NULL,
  active boolean NOT NULL,
  -- When a mute ends, ms since the epoch; 0: never. An inactive row has 0.
  expires_at bigint NOT NULL,
  reposts_only boolean NOT NULL,
  -- Since when it has been active.
  created_at bigint NOT NULL,
  changed_at bigint NOT NULL,
  PRIMARY KEY (user_id, target_id, kind)
);
CREATE INDEX relations_listed ON users.relations (user_id, kind, created_at, target_id) WHERE active;
CREATE INDEX relations_blocked_by ON users.relations (target_id, user_id) WHERE active AND kind = 1;
CREATE INDEX relations_ending ON users.relations (expires_at) WHERE active AND expires_at > 0;
CREATE INDEX relations_changed ON users.relations (changed_at, user_id, target_id, kind);
CREATE INDEX relations_inactive ON users.relations (changed_at) WHERE NOT active;

-- Building an index of a million follows takes some seconds. What is locked against reads comes after what is not.
CREATE INDEX followings_listed ON users.followings (follower_id, changed_at, following_id) WHERE active;

-- The time of the follow, ms since the epoch: changed_at is when it was applied. It is null in rows of the version before.
ALTER TABLE users.followers ADD COLUMN since bigint;
CREATE INDEX followers_listed ON users.followers (following_id, (coalesce(since, changed_at)), follower_id) WHERE active;

-- Whether the follower blocks the other, or the other the follower. A follow looks at the row that it writes, whose lock
-- orders it and a block: a block has a row here in both directions, also where nobody has followed.
ALTER TABLE users.followings
  ADD COLUMN blocking boolean NOT NULL DEFAULT false,
  ADD COLUMN blocked_by boolean NOT NULL DEFAULT false;
CREATE INDEX followings_prunable ON users.followings (changed_at) WHERE NOT (active OR blocking OR blocked_by);
DROP INDEX users.followings_inactive;

-- It is null in rows of the version before, until their next change: updated_at stands for it.
ALTER TABLE users.profiles ADD COLUMN created_at bigint;
