-- A deleted actor is erased as a user is: the users service is asked until it has answered.
ALTER TABLE posts.remote_objects ADD COLUMN erasure_due boolean NOT NULL DEFAULT false;

CREATE INDEX remote_objects_erasures_due ON posts.remote_objects (deleted_at, uri) WHERE erasure_due;
