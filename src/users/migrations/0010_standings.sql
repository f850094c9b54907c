-- Limited and suspended users and hosts. Processes of the version before go on working: they refuse nobody.
CREATE TABLE users.standings (
  -- Either a user or a host; the other is "".
  user_id text COLLATE "C" NOT NULL,
  host text COLLATE "C" NOT NULL,
  -- 1 is active, 2 limited, 3 suspended, as in the enum Standing of users.proto.
  standing smallint NOT NULL,
  -- When it ends, ms since the epoch; 0: for good.
  until bigint NOT NULL,
  -- Monotonic per user or host. It starts from the time.
  version bigint NOT NULL,
  reason text NOT NULL,
  set_by text NOT NULL,
  changed_at bigint NOT NULL,
  PRIMARY KEY (user_id, host)
);
CREATE INDEX standings_listed ON users.standings (user_id, host) WHERE standing > 1;
CREATE INDEX standings_changed ON users.standings (changed_at, user_id, host);
