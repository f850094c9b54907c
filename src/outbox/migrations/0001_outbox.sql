-- Events that were written together with what they are about, and are published afterwards.
CREATE TABLE public.outbox (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- Which service wrote it; each has relays of its own.
  source text NOT NULL,
  -- What it is about: events of one key are published in the order of their ids.
  key text NOT NULL COLLATE "C",
  subject text NOT NULL,
  -- Nats-Msg-Id: published again under it, an event is admitted once.
  message_id text NOT NULL,
  -- JSON
  body text NOT NULL,
  traceparent text,
  -- ms since the epoch, by the database's clock
  created_at bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  -- Until when a relay has it in hand; ms since the epoch.
  claimed_until bigint NOT NULL DEFAULT 0,
  published_at bigint
)
-- Room for claims on the page of the row, so that they touch no index.
WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 10000);

CREATE INDEX outbox_waiting ON public.outbox (source, id) WHERE published_at IS NULL;
CREATE INDEX outbox_order ON public.outbox (source, key, id) WHERE published_at IS NULL;
CREATE INDEX outbox_published ON public.outbox (published_at) WHERE published_at IS NOT NULL;
