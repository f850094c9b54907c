-- Drops, what people do with them, and foreign objects. Times are ms since the epoch.
CREATE SCHEMA posts;

-- What is about a drop is partitioned by the drop's id, whose first 48 bits are its time of creation (UUIDv7): one
-- partition a month and table, all four with the same bounds. An id leads to its partition, and a month goes as a whole.
CREATE TABLE posts.drops (
  drop_id uuid NOT NULL PRIMARY KEY,
  user_id text NOT NULL COLLATE "C",
  -- The numbers of avion.Visibility.
  visibility smallint NOT NULL CHECK (visibility BETWEEN 1 AND 4),
  recipients text[] NOT NULL,
  -- A drop id or the URI of a foreign drop.
  reply_to text COLLATE "C",
  summary text NOT NULL,
  body text NOT NULL,
  revision integer NOT NULL DEFAULT 1,
  updated_at bigint NOT NULL,
  -- When it was published or deleted, by the database's clock.
  changed_at bigint NOT NULL,
  deleted_at bigint,
  -- Nothing is left about a deleted drop but this row.
  purged boolean NOT NULL DEFAULT false
) PARTITION BY RANGE (drop_id);

CREATE INDEX drops_author ON posts.drops (user_id, drop_id DESC) WHERE deleted_at IS NULL;
CREATE INDEX drops_changed ON posts.drops (changed_at, drop_id);
CREATE INDEX drops_replies ON posts.drops (reply_to, drop_id) WHERE reply_to IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX drops_unpurged ON posts.drops (drop_id) WHERE deleted_at IS NOT NULL AND NOT purged;

-- The versions of a drop before the one in force.
CREATE TABLE posts.revisions (
  drop_id uuid NOT NULL,
  revision integer NOT NULL,
  summary text NOT NULL,
  body text NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (drop_id, revision)
) PARTITION BY RANGE (drop_id);

-- Who likes and shares a drop, and which drops reply to it.
CREATE TABLE posts.reactions (
  drop_id uuid NOT NULL,
  kind text NOT NULL COLLATE "C" CHECK (kind IN ('like', 'share', 'reply')),
  -- A user; the replying drop where it is a reply.
  actor_id text NOT NULL COLLATE "C",
  active boolean NOT NULL,
  -- Each change adds one.
  version integer NOT NULL,
  -- Whether it is in posts.counts.
  counted boolean NOT NULL DEFAULT false,
  -- What its last counting added: RETURNING shows no old values before PostgreSQL 18.
  delta smallint NOT NULL DEFAULT 0,
  changed_at bigint NOT NULL,
  PRIMARY KEY (drop_id, kind, actor_id)
) PARTITION BY RANGE (drop_id);

-- How many reactions of a drop are counted.
CREATE TABLE posts.counts (
  drop_id uuid NOT NULL PRIMARY KEY,
  likes bigint NOT NULL CHECK (likes >= 0),
  shares bigint NOT NULL CHECK (shares >= 0),
  replies bigint NOT NULL CHECK (replies >= 0),
  -- What is being added to the three: the CHECKs look at a proposed row even where it conflicts.
  delta integer[]
) PARTITION BY RANGE (drop_id);

-- Which drop a user's key has made.
CREATE TABLE posts.idempotency (
  user_id text NOT NULL COLLATE "C",
  key text NOT NULL COLLATE "C",
  drop_id uuid NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (user_id, key)
);

CREATE INDEX idempotency_age ON posts.idempotency (created_at);

-- Foreign objects under their URIs. Fields that do not apply are empty, times 0.
CREATE TABLE posts.remote_objects (
  uri text NOT NULL COLLATE "C" PRIMARY KEY,
  -- The numbers of avion.RemoteKind; 0 where it was deleted before it was ever stored.
  kind smallint NOT NULL CHECK (kind BETWEEN 0 AND 3),
  actor_uri text NOT NULL DEFAULT '' COLLATE "C",
  created_at bigint NOT NULL DEFAULT 0,
  document text NOT NULL DEFAULT '',
  public_key text NOT NULL DEFAULT '',
  webfinger text NOT NULL DEFAULT '' COLLATE "C",
  fetched_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  -- How often it was put.
  fetches bigint NOT NULL DEFAULT 1,
  deleted_at bigint
);

CREATE INDEX remote_objects_author ON posts.remote_objects (actor_uri, created_at DESC, uri DESC)
  WHERE kind = 1 AND deleted_at IS NULL;
CREATE INDEX remote_objects_deleted ON posts.remote_objects (deleted_at, uri) WHERE kind = 1 AND deleted_at IS NOT NULL;
CREATE INDEX remote_objects_webfinger ON posts.remote_objects (webfinger, fetched_at)
  WHERE kind = 2 AND deleted_at IS NULL;
CREATE INDEX remote_objects_drop_age ON posts.remote_objects (greatest(created_at, deleted_at)) WHERE kind = 1;
CREATE INDEX remote_objects_expiry ON posts.remote_objects (expires_at) WHERE kind <> 1;

-- Who does the upkeep, until when, and how far its walk through the drops has come.
CREATE TABLE posts.upkeep (
  task text PRIMARY KEY,
  holder text NOT NULL DEFAULT '',
  held_until bigint NOT NULL DEFAULT 0,
  walked_to uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
);
