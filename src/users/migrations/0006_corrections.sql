-- Times a count was corrected: a correction that was computed before another one is not made.
ALTER TABLE users.following_counts ADD COLUMN corrections integer NOT NULL DEFAULT 0;
ALTER TABLE users.follower_counts ADD COLUMN corrections integer NOT NULL DEFAULT 0;
