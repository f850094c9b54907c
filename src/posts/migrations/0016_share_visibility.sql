-- The audience of a share: a number of avion.Visibility, 0 for that of the drop.
ALTER TABLE posts.remote_reactions ADD COLUMN visibility smallint NOT NULL DEFAULT 0 CHECK (visibility BETWEEN 0 AND 4);
