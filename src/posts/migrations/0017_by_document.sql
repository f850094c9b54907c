-- Whether the document of a drop decided its audience, which the followers of its actor, named later, may then change.
ALTER TABLE posts.remote_objects ADD COLUMN by_document boolean NOT NULL DEFAULT false;
