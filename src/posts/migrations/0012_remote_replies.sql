-- Reactions, counts and reposts of a remote drop are rows of the tables of those of drops, under an id of its own.
ALTER TABLE posts.remote_objects
  -- Its first bits are the time of creation, as those of a drop's. What earlier versions write leaves it null.
  ADD COLUMN drop_id uuid,
  -- A drop id or the URI of a remote drop.
  ADD COLUMN reply_to text COLLATE "C",
  -- What else counts or names the drop is as it stands: 1 while it stands, 2 once it is deleted. Otherwise the
  -- maintenance sees to that.
  ADD COLUMN linked smallint NOT NULL DEFAULT 0;

CREATE UNIQUE INDEX remote_objects_drop_id ON posts.remote_objects (drop_id) WHERE drop_id IS NOT NULL;
CREATE INDEX remote_objects_replies ON posts.remote_objects (reply_to, drop_id)
  WHERE reply_to IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX remote_objects_unlinked ON posts.remote_objects (uri)
  WHERE kind = 1 AND linked <> CASE WHEN deleted_at IS NULL THEN 1 ELSE 2 END;
CREATE INDEX remote_objects_dead_unlinked ON posts.remote_objects (actor_uri)
  WHERE kind = 1 AND deleted_at IS NOT NULL AND linked <> 2;
