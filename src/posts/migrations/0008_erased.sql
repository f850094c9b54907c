-- Erased users. Every write looks for them; a process of the version before does not.
CREATE TABLE posts.erased (
  user_id text COLLATE "C" PRIMARY KEY,
  -- ms since the epoch, by the database's clock
  marked_at bigint NOT NULL
);

-- Raises P0001 with the user as its detail.
CREATE FUNCTION posts.refuse_erased(p_user text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the user is erased' USING DETAIL = p_user;
END $$;

-- By these an erasure finds its rows. Creating a drop that is neither direct nor a repost touches none of them, and
-- neither does a like.
CREATE INDEX drops_addressed ON posts.drops USING gin (recipients) WHERE visibility = 4 AND deleted_at IS NULL;
CREATE INDEX drops_deleted_author ON posts.drops (user_id, drop_id) WHERE deleted_at IS NOT NULL AND user_id <> '';
CREATE INDEX drops_reposted_author ON posts.drops (repost_author, drop_id) WHERE repost_author IS NOT NULL;
CREATE INDEX reactions_withdrawn ON posts.reactions (actor_id, drop_id) WHERE NOT active AND kind <> 'reply';
CREATE INDEX remote_objects_addressed ON posts.remote_objects USING gin (recipients)
  WHERE visibility = 4 AND deleted_at IS NULL;
