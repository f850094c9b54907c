-- A page for a reader passes any number of direct drops to others: what every follower may see has an index of its own,
-- and a direct drop is looked up by its author and recipient. An id may hold a space, so that reads compare both again.
CREATE INDEX drops_author_shown ON posts.drops (user_id, drop_id DESC) WHERE deleted_at IS NULL AND visibility <> 4;

CREATE FUNCTION posts.addressed(p_author text, p_recipients text[]) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT array_agg(p_author || ' ' || recipient) FROM unnest(p_recipients) recipient $$;

CREATE INDEX drops_addressed_by ON posts.drops USING gin (posts.addressed(user_id, recipients))
  WHERE visibility = 4 AND deleted_at IS NULL;
