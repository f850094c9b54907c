-- The newest document of an object wins, by the time that it names itself. 0: none is known, as of an earlier version.
ALTER TABLE posts.remote_objects ADD COLUMN updated_at bigint NOT NULL DEFAULT 0;
