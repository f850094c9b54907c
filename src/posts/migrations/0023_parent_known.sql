-- True: the event of the drop, which may come before its parent, named the parent's author. Events of a version before named none.
ALTER TABLE posts.remote_objects ADD COLUMN parent_known boolean NOT NULL DEFAULT false;
