-- Erasures of users, and indexes by which all rows that name a user are found. Processes of the version before go on
-- working: they look for no erasure, and write what this version refuses.
CREATE TABLE users.erasures (
  user_id text COLLATE "C" PRIMARY KEY,
  version bigint NOT NULL,
  -- ms since the epoch, by the database's clock
  requested_at bigint NOT NULL,
  -- When the event was last written; 0 before that.
  announced_at bigint NOT NULL DEFAULT 0,
  -- The row of the outbox that has the event.
  event_id bigint,
  -- From when on a process looks at it again.
  due_at bigint NOT NULL DEFAULT 0,
  completed_at bigint
);
CREATE INDEX erasures_running ON users.erasures (due_at) WHERE completed_at IS NULL;

CREATE TABLE users.erasure_steps (
  user_id text COLLATE "C" NOT NULL,
  name text NOT NULL,
  -- So many rows are left, as far as that is known.
  left_rows bigint NOT NULL DEFAULT 0,
  done_at bigint,
  PRIMARY KEY (user_id, name)
);

-- The rows of one user are in no list of the user, and some are in no list at all: an edge that is not applied yet, one
-- that has ended, a mark of a block. An index of one column has each id once, so that an edge takes about ten bytes.
CREATE INDEX relations_of_target ON users.relations (target_id);
CREATE INDEX followings_of_followed ON users.followings (following_id);
CREATE INDEX followers_of_follower ON users.followers (follower_id);
