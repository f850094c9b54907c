-- The link of an actor's address, and where a server is asked for addresses.
ALTER TABLE posts.remote_objects
  ADD COLUMN webfinger_type text NOT NULL DEFAULT '',
  ADD COLUMN webfinger_href text NOT NULL DEFAULT '',
  ADD COLUMN lrdd_template text NOT NULL DEFAULT '';
