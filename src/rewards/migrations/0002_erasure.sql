-- These users get no rewards any more.
CREATE TABLE public.erased_rewards (
  user_id text NOT NULL COLLATE "C" PRIMARY KEY,
  -- ms since the epoch
  marked_at bigint NOT NULL
);
