-- Lists of users. Processes of the version before go on working: they erase no list.
CREATE TABLE users.lists (
  list_id text COLLATE "C" PRIMARY KEY,
  -- The owner.
  user_id text COLLATE "C" NOT NULL,
  title text NOT NULL,
  -- ms since the epoch
  created_at bigint NOT NULL
);
CREATE INDEX lists_listed ON users.lists (user_id, created_at, list_id);

CREATE TABLE users.list_members (
  list_id text COLLATE "C" NOT NULL,
  member_id text COLLATE "C" NOT NULL,
  -- The owner of the list: fan-out looks for the lists of some owners.
  user_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (list_id, member_id)
);
CREATE INDEX list_members_found ON users.list_members (member_id, list_id);
CREATE INDEX list_members_found_of_owners ON users.list_members (member_id, user_id, list_id);
-- An erasure of the owner removes them.
CREATE INDEX list_members_owned ON users.list_members (user_id);

-- Versions of the events of changed members. Two changes never share one.
CREATE SEQUENCE users.list_versions;
