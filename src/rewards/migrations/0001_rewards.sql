-- Rewards. Times are ms since the epoch.

-- Append-only. Rows go only where a user is erased.
CREATE TABLE public.xp_transactions (
  event_id uuid NOT NULL PRIMARY KEY,
  user_id text NOT NULL COLLATE "C",
  amount numeric NOT NULL CHECK (amount > 0),
  multiplier numeric NOT NULL CHECK (multiplier > 0),
  reason text NOT NULL,
  earned_at bigint NOT NULL,
  -- Sequence in the stream TIMELINE_EVENTS of the message that it rewards.
  event_seq bigint NOT NULL,
  -- The user's transactions in the order of their writing.
  position bigint NOT NULL CHECK (position > 0),
  -- The user's total with this transaction.
  total numeric NOT NULL,
  UNIQUE (user_id, position)
);

-- The last position and total of each user, so that writers of one user take turns.
CREATE TABLE public.xp_totals (
  user_id text NOT NULL COLLATE "C" PRIMARY KEY,
  position bigint NOT NULL,
  total numeric NOT NULL
);

CREATE FUNCTION public.xp_transactions_stay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'xp_transactions is append-only';
END $$;

CREATE TRIGGER xp_transactions_stay BEFORE UPDATE ON public.xp_transactions
  FOR EACH ROW EXECUTE FUNCTION public.xp_transactions_stay();
