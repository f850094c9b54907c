import type { Db } from "../platform/db/db.js";
import type { OutboxEvent, OutboxStore } from "./ports.js";

/** Where the outbox's migrations are. */
export const OUTBOX_MIGRATIONS = { component: "outbox", folder: new URL("./migrations/", import.meta.url) };

const NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/** Of one owner so many of the oldest rows are looked at: those of one key may have to wait for each other. */
const WINDOW = 2_000;

/** Candidates looked for, in claims: where one owner has few, another's fill up. */
const CANDIDATES = 5;

/**
 * Owners take turns. From the owner named by $4 on, each that has rows waiting is found by one look at the index, and
 * then the first rows of each; the first row of every owner goes before the second of any.
 *
 * A row is skipped while an earlier one of its key waits, whoever has that in hand: several relays keep the order of a
 * key without knowing of each other. Whoever claims at the same moment is stepped over (SKIP LOCKED), and the claim is
 * looked at again under the lock; coalesce() keeps it to the primary key.
 */
const CLAIM = `
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
  SELECT id FROM public.outbox
  WHERE id = ANY (ARRAY(SELECT id FROM candidate ORDER BY rank, id LIMIT $2::int))
    AND coalesce(published_at, 0) = 0 AND claimed_until < ${NOW}
  FOR UPDATE SKIP LOCKED
)
UPDATE public.outbox SET claimed_until = ${NOW} + $3
WHERE id = ANY (ARRAY(SELECT id FROM claimed))
RETURNING id, key, subject, message_id AS "messageId", body, traceparent, created_at AS "createdAt",
  (SELECT owner FROM turn WHERE place = $2::int) AS "upTo"`;

/** The lowest text after all that begin with no more than this, by bytes. */
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

/** How much waits differs by orders of magnitude. */
const PLANNED = { eachTime: true };

/** The outbox of one service. */
export function createOutboxStore(db: Db, source: string): OutboxStore {
  let from = "";
  return {
    claim: async (limit, leaseMs) => {
      const rows = await db.query<OutboxEvent & { upTo: string | null }>(
        CLAIM,
        [source, limit, leaseMs, from],
        PLANNED,
      );
      const upTo = rows[0]?.upTo;
      from = upTo == null ? "" : after(upTo);
      return rows.map(({ upTo: _, ...event }) => event);
    },
    refuse: async (id, againMs) => (await db.query<{ refusals: number }>(REFUSE, [id, againMs]))[0]?.refusals ?? 0,
    markPublished: async (ids) => {
      await db.query(`UPDATE public.outbox SET published_at = ${NOW} WHERE id = ANY($1::bigint[])`, [ids]);
    },
    release: async (ids) => {
      await db.query(
        "UPDATE public.outbox SET claimed_until = 0 WHERE id = ANY($1::bigint[]) AND published_at IS NULL",
        [ids],
      );
    },
    prune: async (ageMs, limit) => (await db.query(PRUNE, [source, ageMs, limit])).length,
    backlog: async () => (await db.query<{ waiting: number; oldestMs: number }>(BACKLOG, [source]))[0] as never,
  };
}

/** The channel of the database's notifications on which the relays of a service are woken. */
export const wakeChannel = (source: string): string => `outbox_${source}`;

/** Wakes the relays of a service in every process. */
export const createNotifyRelays =
  (db: Db, source: string): (() => Promise<void>) =>
  async () => {
    await db.query("SELECT pg_notify($1, '')", [wakeChannel(source)]);
  };
