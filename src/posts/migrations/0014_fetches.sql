-- What is being fetched from other servers, and what could not be fetched lately. One row a URI, which is kept as its
-- SHA-256: a URI may be the id of a person who is erased.
CREATE TABLE posts.fetches (
  uri_hash text NOT NULL COLLATE "C" PRIMARY KEY,
  -- The host that is asked.
  host text NOT NULL COLLATE "C",
  holder uuid NOT NULL,
  started_at bigint NOT NULL,
  -- Nobody else fetches the URI before this time.
  until bigint NOT NULL,
  -- Null while it is fetched.
  outcome text
);

CREATE INDEX fetches_host ON posts.fetches (host, started_at);
CREATE INDEX fetches_until ON posts.fetches (until);
