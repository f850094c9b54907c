import { throwIfStopping } from "../../kernel/errors.js";
import { MINUTE, pause, SECOND } from "../../kernel/time.js";
import type { Queries } from "./db.js";

const LOOK_EVERY_MS = SECOND / 20;

/** The driver and the server end a statement of ours before. */
const STATEMENTS_END_WITHIN_MS = MINUTE;

/**
 * A transaction holds a lock on its virtual id from before its first snapshot to its end, and one on an id of its own
 * once it has written. pg_locks shows both to every role, other than the times in pg_stat_activity. Autovacuum has no
 * user, and may take hours.
 */
const RUNNING = `
SELECT l.virtualtransaction AS id, bool_or(l.locktype = 'transactionid') AS wrote
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype IN ('virtualxid', 'transactionid') AND l.mode = 'ExclusiveLock' AND l.granted
  AND a.datname = current_database() AND a.usesysid IS NOT NULL AND l.pid <> pg_backend_pid()
GROUP BY 1`;

interface WaitOptions {
  readonly stopping?: AbortSignal | undefined;
  readonly statementsEndWithinMs?: number;
}

/**
 * Resolves once every transaction of this database has ended that is older than the call. What is committed before the
 * call is then seen by all who write, and whatever they wrote without seeing it is visible. A transaction that only
 * reads, such as a backup, is waited for until no statement with its snapshot can write any more. Nobody waits on
 * PGlite, which has one connection. It must not be called within a transaction.
 *
 * @throws AppError `unavailable` if `stopping` aborts
 */
export async function untilOlderEnded(
  { query }: Pick<Queries, "query">,
  { stopping, statementsEndWithinMs = STATEMENTS_END_WITHIN_MS }: WaitOptions = {},
): Promise<void> {
  const running = () => query<{ id: string; wrote: boolean }>(RUNNING);
  const older = new Set((await running()).map(({ id }) => id));
  const readersUntil = performance.now() + statementsEndWithinMs;
  while (older.size > 0) {
    await pause(LOOK_EVERY_MS, stopping);
    if (stopping) throwIfStopping(stopping, "older transactions end");
    const transactions = new Map((await running()).map(({ id, wrote }) => [id, wrote]));
    const isOver = performance.now() > readersUntil;
    for (const id of older) if (isOver ? transactions.get(id) !== true : !transactions.has(id)) older.delete(id);
  }
}
