-- Whose events wait in turn with those of others: the followed user of an edge, the author of a drop. Very many events
-- of one owner are published beside those of the others, and not in front of them.
ALTER TABLE public.outbox
  ADD COLUMN owner text NOT NULL DEFAULT '' COLLATE "C",
  -- How often NATS has refused the event.
  ADD COLUMN refusals smallint NOT NULL DEFAULT 0;

-- The second condition is always true: only statements that name it may use this index. Without statistics of a queue
-- that is mostly empty it would be taken for what outbox_order is for.
CREATE INDEX outbox_turns ON public.outbox (source, owner, id) WHERE published_at IS NULL AND owner >= '';
DROP INDEX public.outbox_waiting;
