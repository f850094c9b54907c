import { AppError } from "../kernel/errors.js";
import type { Db, Queries } from "../platform/db/db.js";

/** Tables that refuse an erased user. Each role has its own, and may have another database. */
const MARKERS: readonly Marker[] = [
  { table: "posts.erased", since: "marked_at" },
  {
    table: "posts.remote_objects",
    since: "deleted_at",
    condition: "uri = $1 AND kind <> 1 AND deleted_at IS NOT NULL",
    running: "erasure_due",
  },
  {
    table: "users.erasures",
    since: "greatest(requested_at, announced_at, completed_at)",
    running: "completed_at IS NULL",
  },
  { table: "public.erased_analyses", since: "marked_at" },
  { table: "public.erased_rewards", since: "marked_at" },
  { table: "public.erased_notifications", since: "marked_at" },
];

interface Marker {
  readonly table: string;
  /** An SQL expression of the last change, in ms since the epoch. */
  readonly since: string;
  readonly condition?: string;
  /** An SQL condition under which the erasure is not completed. */
  readonly running?: string;
}

interface Row {
  readonly since: number;
  readonly running: boolean;
}

const IS_USER = "user_id = $1";

const rowOf = ({ since, running = "false" }: Marker): string => `${since} AS since, ${running} AS running`;

export const stillRunning = (): AppError =>
  new AppError("conflict", "the erasure is still running: `erase show` says what it waits for");

async function markersIn(db: Queries): Promise<readonly Marker[]> {
  const sql = "SELECT t.name FROM unnest($1::text[]) AS t (name) WHERE to_regclass(t.name) IS NOT NULL";
  const there = await db.query<{ name: string }>(sql, [MARKERS.map(({ table }) => table)]);
  const names = new Set(there.map(({ name }) => name));
  return MARKERS.filter(({ table }) => names.has(table));
}

function lastOf(rows: readonly Row[]): number | undefined {
  if (rows.some(({ running }) => running)) throw stillRunning();
  return rows.length === 0 ? undefined : Math.max(...rows.map(({ since }) => since));
}

/**
 * Resolves to when the last marker of an actor changed, in ms since the epoch; undefined if the tables have none.
 *
 * @throws AppError `conflict` while the erasure runs
 */
export async function lastMarked(db: Queries, actor: string): Promise<number | undefined> {
  const rows: Row[] = [];
  for (const marker of await markersIn(db)) {
    const { table, condition = IS_USER } = marker;
    rows.push(...(await db.query<Row>(`SELECT ${rowOf(marker)} FROM ${table} WHERE ${condition}`, [actor])));
  }
  return lastOf(rows);
}

/** Removes all markers or none. @throws AppError `conflict` if the erasure runs */
export const removeMarkers = (db: Pick<Db, "transaction">, actor: string): Promise<void> =>
  db.transaction(async (queries) => {
    const rows: Row[] = [];
    for (const marker of await markersIn(queries)) {
      const { table, condition = IS_USER } = marker;
      const sql = `DELETE FROM ${table} WHERE ${condition} RETURNING ${rowOf(marker)}`;
      rows.push(...(await queries.query<Row>(sql, [actor])));
      if (table === "users.erasures") await queries.query(`DELETE FROM users.erasure_steps WHERE ${IS_USER}`, [actor]);
    }
    lastOf(rows);
  });
