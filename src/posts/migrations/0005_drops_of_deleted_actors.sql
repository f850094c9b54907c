-- The drops of a deleted actor are deleted, too. An object of no known kind may have been an actor.
ALTER TABLE posts.remote_objects ADD COLUMN drops_removed boolean NOT NULL DEFAULT false;

CREATE INDEX remote_objects_drops_left ON posts.remote_objects (deleted_at, uri)
  WHERE kind <> 1 AND deleted_at IS NOT NULL AND NOT drops_removed;
