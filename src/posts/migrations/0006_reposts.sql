-- A share makes a repost: a drop of its own. What earlier versions write leaves these columns null.
ALTER TABLE posts.drops
  -- Of a repost: the original and its author.
  ADD COLUMN repost_of uuid,
  ADD COLUMN repost_author text COLLATE "C";

-- The repost of a share, while there is one: shares made before reposts existed have none.
ALTER TABLE posts.reactions ADD COLUMN repost_id uuid;

-- Few drops are reposts: creating another drop touches no page of this index.
CREATE INDEX drops_reposts ON posts.drops (repost_of) WHERE repost_of IS NOT NULL AND deleted_at IS NULL;
