-- The drops of a remote actor in the order of their ids, as those of a local user are listed.
CREATE INDEX remote_objects_listed ON posts.remote_objects (actor_uri, drop_id DESC) WHERE kind = 1 AND deleted_at IS NULL;
