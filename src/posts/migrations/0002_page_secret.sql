-- What page tokens are sealed with. All processes share it; a new value makes the tokens handed out before invalid.
CREATE TABLE posts.page_secret (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  secret text NOT NULL
);

INSERT INTO posts.page_secret (secret) VALUES (gen_random_uuid()::text || gen_random_uuid()::text);
