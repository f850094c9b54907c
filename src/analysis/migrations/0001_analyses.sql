-- Completed analyses. Times are ms since the epoch.
CREATE TABLE public.timeline_analyses (
  analysis_id uuid NOT NULL PRIMARY KEY,
  user_id text NOT NULL COLLATE "C",
  -- An account of the AT Protocol, or a user of ours.
  did text NOT NULL COLLATE "C",
  type text NOT NULL CHECK (type IN ('flow', 'clout', 'kudos', 'pulse', 'full')),
  tier text NOT NULL CHECK (tier IN ('DRIFT', 'LIFT', 'JET', 'ORBIT')),
  requested_at bigint NOT NULL,
  started_at bigint NOT NULL,
  completed_at bigint NOT NULL,
  cached boolean NOT NULL,
  results json NOT NULL,
  -- Sequence in the stream TIMELINE of the message that completed it.
  request_seq bigint NOT NULL
);

CREATE INDEX timeline_analyses_user ON public.timeline_analyses (user_id);
CREATE INDEX timeline_analyses_age ON public.timeline_analyses (completed_at);
