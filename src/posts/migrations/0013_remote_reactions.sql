-- Likes and shares by remote actors, under their URIs. What they amount to is a row of posts.reactions, one an actor,
-- drop and kind, and a repost.
CREATE TABLE posts.remote_reactions (
  uri text NOT NULL COLLATE "C" PRIMARY KEY,
  actor_uri text NOT NULL DEFAULT '' COLLATE "C",
  -- A drop id or the URI of a remote drop, which may not be stored yet.
  object text NOT NULL DEFAULT '' COLLATE "C",
  -- The numbers of avion.RemoteReactionKind; 0 where it was deleted before it was ever stored.
  kind smallint NOT NULL CHECK (kind BETWEEN 0 AND 2),
  created_at bigint NOT NULL DEFAULT 0,
  deleted_at bigint,
  -- 1: it counts; 2: it counts no longer; 3: it waits for its object. Otherwise the maintenance sees to that.
  linked smallint NOT NULL DEFAULT 0
);

CREATE INDEX remote_reactions_object ON posts.remote_reactions (object, kind, actor_uri);
CREATE INDEX remote_reactions_actor ON posts.remote_reactions (actor_uri);
CREATE INDEX remote_reactions_unlinked ON posts.remote_reactions (uri)
  WHERE kind <> 0 AND CASE WHEN deleted_at IS NULL THEN linked NOT IN (1, 3) ELSE linked <> 2 END;
CREATE INDEX remote_reactions_deleted ON posts.remote_reactions (deleted_at) WHERE deleted_at IS NOT NULL;

-- Of a repost of a remote drop. Its repost_of is the id under which that drop has reactions: a process of the version
-- before finds no drop of that id, and shows no such repost.
ALTER TABLE posts.drops ADD COLUMN repost_uri text COLLATE "C";
