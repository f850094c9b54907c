-- The lists of likes and shares, by the time of the like or share; a count leaves that time as it is. Replies are listed
-- by their parent in posts.drops.
CREATE INDEX reactions_of_drop ON posts.reactions (drop_id, kind, changed_at, actor_id) WHERE active AND kind <> 'reply';
CREATE INDEX reactions_of_actor ON posts.reactions (actor_id, kind, changed_at, drop_id) WHERE active AND kind <> 'reply';
