import type { XpEarned } from "../contracts/analysis.js";
import { invalid } from "../kernel/errors.js";
import type { KeysetPage } from "../kernel/paging.js";
import type { Db, Queries } from "../platform/db/db.js";
import { unlessNoTable } from "../platform/db/errors.js";

/** Times are RFC 3339. */
export interface Award extends XpEarned {
  /** The total is the user's with this award. */
  readonly total: number;
  /** Sequence in TIMELINE_EVENTS of the message that is rewarded. */
  readonly event_seq: number;
}

interface Row extends Omit<Award, "earned_at"> {
  readonly earned_at: number;
  readonly position: number;
}

const FIRST_PAGE = String(Number.MAX_SAFE_INTEGER);

const COLUMNS = `event_id, user_id, amount::float8 AS amount, multiplier::float8 AS multiplier, reason, earned_at,
  event_seq, position, total::float8 AS total`;

const awardOf = ({ position: _, earned_at, ...row }: Row): Award => ({
  ...row,
  earned_at: new Date(earned_at).toISOString(),
});

/** Everything rejects with AppError `unavailable` while the database is unavailable. */
export function createRewardStore(db: Db) {
  return {
    /** An event is awarded once: returns the existing award, or undefined for an erased user. */
    award: (earned: XpEarned, eventSeq: number): Promise<Award | undefined> =>
      db.transaction((queries) => award(queries, earned, eventSeq)),
    page: (user: string, page: KeysetPage) =>
      unlessNoTable(readPage(db, user, page), { total: 0, transactions: [], next: undefined }),
  };
}

async function award(queries: Queries, earned: XpEarned, eventSeq: number): Promise<Award | undefined> {
  const { event_id, user_id, amount, multiplier, reason, earned_at } = earned;
  // Holds the user's row: no other writer of this user is between here and the end of the transaction. An erasure waits
  // for that end if this does not see its marker.
  const rows = await queries.query(
    `INSERT INTO public.xp_totals (user_id, position, total) SELECT $1::text, 0, 0
     WHERE NOT EXISTS (SELECT FROM public.erased_rewards WHERE user_id = $1::text)
     ON CONFLICT (user_id) DO UPDATE SET position = xp_totals.position RETURNING user_id`,
    [user_id],
  );
  if (rows.length === 0) return undefined;
  const [row] = await queries.query<Row>(
    `INSERT INTO public.xp_transactions (event_id, user_id, amount, multiplier, reason, earned_at, event_seq, position, total)
     SELECT $1, user_id, $3::numeric, $4::numeric, $5, $6::bigint, $7::bigint, position + 1, total + $3::numeric
     FROM public.xp_totals WHERE user_id = $2
     ON CONFLICT (event_id) DO NOTHING RETURNING ${COLUMNS}`,
    [event_id, user_id, amount, multiplier, reason, Date.parse(earned_at), eventSeq],
  );
  if (row === undefined) return existingAward(queries, event_id);
  await queries.query(
    "UPDATE public.xp_totals SET position = position + 1, total = total + $2::numeric WHERE user_id = $1",
    [user_id, amount],
  );
  return awardOf(row);
}

async function existingAward(queries: Queries, event: string): Promise<Award> {
  const [row] = await queries.query<Row>(`SELECT ${COLUMNS} FROM public.xp_transactions WHERE event_id = $1`, [event]);
  if (row === undefined) throw new Error("an award was neither inserted nor found");
  return awardOf(row);
}

async function readPage(db: Db, user: string, { limit, before = FIRST_PAGE }: KeysetPage) {
  if (!/^\d{1,16}$/.test(before)) throw invalid("cursor", "is no cursor of this list");
  const [row] = await db.query<{ total: number }>(
    "SELECT total::float8 AS total FROM public.xp_totals WHERE user_id = $1",
    [user],
  );
  const rows = await db.query<Row>(
    `SELECT ${COLUMNS} FROM public.xp_transactions WHERE user_id = $1 AND position < $2::bigint
     ORDER BY position DESC LIMIT $3`,
    [user, before, limit + 1],
  );
  const page = rows.slice(0, limit);
  return {
    total: row?.total ?? 0,
    transactions: page.map((row) => {
      const { event_id, amount, multiplier, reason, earned_at } = awardOf(row);
      return { event_id, amount, multiplier, reason, earned_at };
    }),
    next: rows.length > limit ? String(page.at(-1)?.position) : undefined,
  };
}
