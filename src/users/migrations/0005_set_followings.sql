-- Follows and unfollows are set by one statement, which needs no function. users.set_following stays for processes of
-- the version before.
DROP FUNCTION users.change_following(text, text, boolean, integer);

-- What is being added: the CHECK looks at a proposed row even where it conflicts.
ALTER TABLE users.following_counts ADD COLUMN delta integer;

-- Raises P0001 with the user as its detail.
CREATE FUNCTION users.refuse_following(p_user text, p_most integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'at most % can be followed', p_most USING DETAIL = p_user;
END $$;
