-- Notifications. Times are ms since the epoch.

CREATE TABLE public.notifications (
  user_id text NOT NULL COLLATE "C",
  -- A number of the enum NotificationKind: what the user is, or was, notified of.
  kind smallint NOT NULL,
  -- The kind, but that a follow takes the place of the request.
  slot smallint NOT NULL,
  actor_id text NOT NULL COLLATE "C",
  -- "" for follows.
  drop_id text NOT NULL COLLATE "C",
  -- The drop that made it: of a repost the repost, else drop_id.
  by_drop text NOT NULL COLLATE "C",
  -- The newest (version, rank) of the key decides.
  version bigint NOT NULL,
  rank smallint NOT NULL,
  -- 0: never shown, 1: shown, 2: taken back.
  state smallint NOT NULL,
  -- The id. µs of its admission, or one more than the user's last.
  position bigint NOT NULL,
  -- Sequence in its stream of the message that made it.
  seq bigint NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (drop_id, user_id, slot, actor_id)
);
CREATE INDEX notifications_listed ON public.notifications (user_id, position);
CREATE INDEX notifications_actor ON public.notifications (actor_id);
CREATE INDEX notifications_reposts ON public.notifications (by_drop) WHERE by_drop <> drop_id;
CREATE INDEX notifications_old ON public.notifications (expires_at);

-- The last position of each user, so that writers of one user take turns.
CREATE TABLE public.notification_users (
  user_id text NOT NULL COLLATE "C" PRIMARY KEY,
  position bigint NOT NULL,
  -- The position before the last write.
  previous bigint NOT NULL,
  read_up_to bigint NOT NULL,
  -- Rows written since the last trimming.
  added bigint NOT NULL
);
CREATE INDEX notification_users_old ON public.notification_users (position);
CREATE INDEX notification_users_untrimmed ON public.notification_users (user_id) WHERE added >= 100;

-- Likes and reposts of one drop, which share an event of the stream.
CREATE TABLE public.notification_groups (
  drop_id text NOT NULL COLLATE "C",
  user_id text NOT NULL COLLATE "C",
  kind smallint NOT NULL,
  -- Notifications so far; those that events told of; those that the event under way tells of. They count on from the time
  -- at which the group begins: an event of it has another number than one of an earlier group.
  total bigint NOT NULL,
  told bigint NOT NULL,
  telling bigint,
  -- Events that were published told of positions up to the first; the event under way tells of later ones up to the second.
  told_position bigint NOT NULL,
  telling_position bigint,
  -- When the last event was begun.
  told_at bigint NOT NULL,
  -- An event is due.
  pending boolean NOT NULL,
  changed_at bigint NOT NULL,
  PRIMARY KEY (drop_id, user_id, kind)
);
CREATE INDEX notification_groups_pending ON public.notification_groups (told_at) WHERE pending;
CREATE INDEX notification_groups_user ON public.notification_groups (user_id);
CREATE INDEX notification_groups_old ON public.notification_groups (changed_at);

-- These users get no notifications any more, and nobody is notified of them.
CREATE TABLE public.erased_notifications (
  user_id text NOT NULL COLLATE "C" PRIMARY KEY,
  marked_at bigint NOT NULL
);
