-- Analyses of a user's account are found where the user is erased.
CREATE INDEX timeline_analyses_did ON public.timeline_analyses (did);

-- No analysis by or about these users is stored any more.
CREATE TABLE public.erased_analyses (
  user_id text NOT NULL COLLATE "C" PRIMARY KEY,
  -- ms since the epoch
  marked_at bigint NOT NULL
);
