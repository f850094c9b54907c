-- What else a drop has, and whom it mentions; null where there is nothing. `json` keeps the order of fields that a client sent.
ALTER TABLE posts.drops
  ADD COLUMN mentions text[],
  ADD COLUMN payload json,
  -- Of a reply: the author of its parent; null also where an earlier version stored it.
  ADD COLUMN reply_author text COLLATE "C";
ALTER TABLE posts.remote_objects ADD COLUMN mentions text[], ADD COLUMN payload json;
-- Mentions of a version before are not kept: an erasure would have to find them.
ALTER TABLE posts.revisions ADD COLUMN payload json;

-- An erasure finds its rows by these. A drop that neither mentions nor replies touches none of them.
CREATE INDEX drops_reply_author ON posts.drops (reply_author, drop_id) WHERE reply_author IS NOT NULL;
CREATE INDEX drops_mentions ON posts.drops USING gin (mentions) WHERE mentions IS NOT NULL;
CREATE INDEX remote_objects_mentions ON posts.remote_objects USING gin (mentions) WHERE mentions IS NOT NULL;
