-- Down to when drops are kept. It is raised before anything goes, and never lowered, so that whoever was told can rely on it.
CREATE TABLE posts.retention (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  -- In ms since the epoch; 0: from the start.
  kept_since bigint NOT NULL DEFAULT 0
);

INSERT INTO posts.retention DEFAULT VALUES;
