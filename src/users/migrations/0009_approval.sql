-- Users who approve followers, and requests to follow them. Processes of the version before go on working: they follow
-- without a request.
CREATE TABLE users.approvals (
  user_id text COLLATE "C" PRIMARY KEY,
  approves boolean NOT NULL,
  -- Requests made until then are accepted: the last time that approval was switched off, ms since the epoch.
  accept_until bigint NOT NULL DEFAULT 0,
  -- From when on a process accepts some of them; 0: never.
  due_at bigint NOT NULL DEFAULT 0
);
CREATE INDEX approvals_due ON users.approvals (due_at) WHERE due_at > 0;

-- When the follower asked to follow, ms since the epoch: a request is an inactive edge with this time. A request and a
-- block look at the row that they write, whose lock orders them. delta is by how much the last change moved the count.
ALTER TABLE users.followings
  ADD COLUMN requested_at bigint,
  ADD COLUMN delta smallint NOT NULL DEFAULT 0;
CREATE INDEX followings_requests ON users.followings (following_id, requested_at, follower_id)
  WHERE requested_at IS NOT NULL AND NOT active;
CREATE INDEX followings_requesting ON users.followings (follower_id) WHERE requested_at IS NOT NULL AND NOT active;

-- A request is not pruned.
CREATE INDEX followings_ended ON users.followings (changed_at)
  WHERE NOT (active OR blocking OR blocked_by) AND requested_at IS NULL;
DROP INDEX users.followings_prunable;
