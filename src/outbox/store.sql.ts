import { NEWEST_COUNTS, type OutboxEvent, type OutboxSource } from "../contracts/outbox.js";
import { type Db, NOW, PLANNED_EACH_TIME } from "../platform/db/db.js";

/** Maximum number of the oldest rows of an owner or a key that a claim looks at: rows of a key wait for each other. */
const WINDOW = 2_000;

/** Number of candidates for each row wanted: if one owner has few, those of others fill up. */
const CANDIDATES = 5;

/**
 * Owners take turns. From the owner $4 on, each owner with waiting rows is found by one index lookup, and then its
 * first rows; the first row of every owner comes before the second row of any.
 *
 * A row is skipped while an earlier one of its key waits, claimed or not, so that several relays keep the order of a key
 * without knowing of each other. Rows being claimed at the same moment are skipped (SKIP LOCKED), and a claim is checked
 * again under the lock; coalesce() keeps that query to the primary key.
 */
const claimStatement = (source: OutboxSource): string => `
WITH RECURSIVE turn AS (
  SELECT 1 AS place, (
    SELECT owner FROM public.outbox
    WHERE source = $1 AND published_at IS NULL AND owner >= '' AND owner >= $4::text ORDER BY owner LIMIT 1
  ) AS owner
  UNION ALL
  SELECT turn.place + 1, (
    SELECT o.owner FROM public.outbox o
    WHERE o.source = $1 AND o.published_at IS NULL AND o.owner >= '' AND o.owner > turn.owner ORDER BY o.owner LIMIT 1
  )
  FROM turn WHERE turn.owner IS NOT NULL AND turn.place < $2::int
), most AS (
  SELECT least($2::int, ${CANDIDATES} * $2::int / greatest(count(owner), 1)) AS each FROM turn
), candidate AS (
  SELECT waiting.id, waiting.rank FROM turn CROSS JOIN most CROSS JOIN LATERAL (
    SELECT first.id, row_number() OVER (ORDER BY first.id) AS rank FROM (
      SELECT o.id, o.key, o.claimed_until FROM public.outbox o
      WHERE o.source = $1 AND o.owner = turn.owner AND o.published_at IS NULL AND o.owner >= ''
      ORDER BY o.id LIMIT ${WINDOW}
    ) first
    WHERE first.claimed_until < ${NOW} AND first.id = (
      SELECT min(k.id) FROM public.outbox k WHERE k.source = $1 AND k.key = first.key AND k.published_at IS NULL
    )
    ORDER BY first.id LIMIT most.each
  ) waiting
), claimed AS (
  SELECT id, key FROM public.outbox
  WHERE id = ANY (ARRAY(SELECT id FROM candidate ORDER BY rank, id LIMIT $2::int))
    AND coalesce(published_at, 0) = 0 AND claimed_until < ${NOW}
  FOR UPDATE SKIP LOCKED
)${NEWEST_COUNTS.has(source) ? SUPERSEDED : ""}, taken AS (
  UPDATE public.outbox SET claimed_until = ${NOW} + $3
  WHERE id = ANY (ARRAY(SELECT id FROM claimed))
  RETURNING id, key, subject, message_id AS "messageId", body, traceparent, created_at AS "createdAt"
)
SELECT taken.*, next.owner AS "upTo"
FROM (SELECT max(owner) AS owner FROM turn WHERE place = $2::int) next LEFT JOIN taken ON true`;

/**
 * Marks what waits between a claimed event and the newest of its key: one follower who follows and unfollows without end
 * would fill the window of their owner. Nobody else has events of a key in hand whose first one is claimed here.
 */
const SUPERSEDED = `, superseded AS (
  UPDATE public.outbox SET published_at = ${NOW}
  WHERE id = ANY (ARRAY(
    SELECT later.id FROM claimed CROSS JOIN LATERAL (
      SELECT next.id, lead(next.id) OVER (ORDER BY next.id) AS newer FROM (
        SELECT k.id FROM public.outbox k
        WHERE k.source = $1 AND k.key = claimed.key AND k.id > claimed.id AND k.published_at IS NULL
        ORDER BY k.id LIMIT ${WINDOW}
      ) next
    ) later
    WHERE later.newer IS NOT NULL LIMIT ${WINDOW}
  ))
)`;

/** One row without an event stands for nothing that could be claimed. */
type Claimed = (OutboxEvent | { readonly id: null }) & { readonly upTo: string | null };

const after = (owner: string): string => `${owner}\u0001`;

const REFUSE = `
UPDATE public.outbox SET refusals = refusals + 1, claimed_until = ${NOW} + $2::bigint * (1 << least(refusals::int, 6))
WHERE id = $1 AND published_at IS NULL RETURNING refusals`;

const PRUNE = `
DELETE FROM public.outbox WHERE id IN (
  SELECT id FROM public.outbox WHERE published_at < (SELECT ${NOW} - $2::bigint) AND source = $1 LIMIT $3 FOR UPDATE SKIP LOCKED
) RETURNING id`;

const BACKLOG = `
SELECT count(*) AS waiting, coalesce(${NOW} - min(created_at), 0) AS "oldestMs"
FROM public.outbox WHERE source = $1 AND published_at IS NULL`;

export type OutboxStore = ReturnType<typeof createOutboxStore>;

export function createOutboxStore(db: Db, source: OutboxSource) {
  const claim = claimStatement(source);
  let from = "";
  const channel = `outbox_${source}`;
  return {
    claim: async (limit: number, leaseMs: number): Promise<OutboxEvent[]> => {
      // A turn is empty if others have claimed its events: only after all owners is nothing left to claim.
      for (let fromFirst = from === ""; ; fromFirst ||= from === "") {
        const rows = await db.query<Claimed>(claim, [source, limit, leaseMs, from], PLANNED_EACH_TIME);
        const upTo = rows[0]?.upTo;
        from = upTo == null ? "" : after(upTo);
        const events = rows.flatMap(({ upTo: _, ...event }) => (event.id === null ? [] : [event]));
        if (events.length > 0 || (fromFirst && from === "")) return events;
      }
    },
    /** Returns the number of refusals. The event is not claimed for `againMs`, doubled with each refusal. */
    refuse: async (id: number, againMs: number): Promise<number> =>
      (await db.query<{ refusals: number }>(REFUSE, [id, againMs]))[0]?.refusals ?? 0,
    markPublished: async (ids: readonly number[]): Promise<void> => {
      await db.query(`UPDATE public.outbox SET published_at = ${NOW} WHERE id = ANY($1::bigint[])`, [ids]);
    },
    release: async (ids: readonly number[]): Promise<void> => {
      await db.query(
        "UPDATE public.outbox SET claimed_until = 0 WHERE id = ANY($1::bigint[]) AND published_at IS NULL",
        [ids],
      );
    },
    prune: async (ageMs: number, limit: number): Promise<number> =>
      (await db.query(PRUNE, [source, ageMs, limit])).length,
    backlog: async () => {
      const [backlog] = await db.query<{ readonly waiting: number; readonly oldestMs: number }>(BACKLOG, [source]);
      return backlog ?? { waiting: 0, oldestMs: 0 };
    },
    notifyRelays: async (): Promise<void> => void (await db.query("SELECT pg_notify($1, '')", [channel])),
    onNotified: (wake: () => void): Promise<void> => db.listen(channel, wake),
  };
}
