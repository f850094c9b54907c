-- A drop whose addresses its actor's document has to explain is as for followers until then, and has no event.
ALTER TABLE posts.remote_objects ADD COLUMN awaits_actor boolean NOT NULL DEFAULT false;

CREATE INDEX remote_objects_awaiting ON posts.remote_objects (actor_uri, uri) WHERE awaits_actor;
