import type { Db } from "../platform/db/db.js";
import type { OutboxEvent, OutboxStore } from "./ports.js";

/** Where the outbox's migrations are. */
export const OUTBOX_MIGRATIONS = { component: "outbox", folder: new URL("./migrations/", import.meta.url) };

const NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/**
 * A row is skipped while an earlier one of its key waits, whoever has that in hand: several relays keep the order of a
 * key without knowing of each other. Whoever claims at the same moment is stepped over (SKIP LOCKED), and the claim is
 * looked at again under the lock.
 */
const CLAIM = `
UPDATE public.outbox SET claimed_until = ${NOW} + $3
WHERE id IN (
  SELECT id FROM public.outbox o
  WHERE source = $1 AND published_at IS NULL AND claimed_until < ${NOW}
    AND id = (
      SELECT min(first.id) FROM public.outbox first
      WHERE first.source = o.source AND first.key = o.key AND first.published_at IS NULL
    )
  ORDER BY id LIMIT $2
  FOR UPDATE SKIP LOCKED
)
RETURNING id, key, subject, message_id AS "messageId", body, traceparent, created_at AS "createdAt"`;

const PRUNE = `
DELETE FROM public.outbox WHERE id IN (
  SELECT id FROM public.outbox WHERE published_at < (SELECT ${NOW} - $2::bigint) AND source = $1 LIMIT $3 FOR UPDATE SKIP LOCKED
) RETURNING id`;

const BACKLOG = `
SELECT count(*) AS waiting, coalesce(${NOW} - min(created_at), 0) AS "oldestMs"
FROM public.outbox WHERE source = $1 AND published_at IS NULL`;

/** The outbox of one service. */
export function createOutboxStore(db: Db, source: string): OutboxStore {
  return {
    claim: (limit, leaseMs) => db.query<OutboxEvent>(CLAIM, [source, limit, leaseMs]),
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
