import { AppError } from "../kernel/errors.js";
import type { KeysetPage } from "../kernel/paging.js";
import { DAY } from "../kernel/time.js";
import { type Db, NOW, type Queries } from "../platform/db/db.js";
import { unlessNoTable } from "../platform/db/errors.js";
import type { CompletedAnalysis } from "./saga.js";

const TIMES = ["requested_at", "started_at", "completed_at"] as const;
type Time = (typeof TIMES)[number];
type Row = Omit<CompletedAnalysis, Time> & Readonly<Record<Time, number>>;

const ROWS_AT_ONCE = 1_000;
const LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff";

const COLUMNS = `analysis_id, user_id, did, type, tier, requested_at, started_at, completed_at, cached, results,
  request_seq`;

export type AnalysisStore = ReturnType<typeof createAnalysisStore>;

/** Everything rejects with AppError `unavailable` while the database is unavailable. */
export function createAnalysisStore(db: Db) {
  const findAmong = async (user: string, ids: readonly string[]): Promise<ReadonlyMap<string, CompletedAnalysis>> => {
    const sql = `SELECT ${COLUMNS} FROM public.timeline_analyses WHERE analysis_id = ANY($1::uuid[]) AND user_id = $2`;
    const rows = await unlessNoTable(db.query<Row>(sql, [ids, user]), []);
    return new Map(rows.map((row) => [row.analysis_id, completedOf(row)]));
  };
  const find = async (user: string, id: string) => (await findAmong(user, [id])).get(id);
  return {
    /** Returns the row that stands: an analysis is completed once. @throws AppError `gone` for that of an erased user */
    async insert(analysis: CompletedAnalysis): Promise<CompletedAnalysis> {
      const { user_id, did, analysis_id } = analysis;
      const row = (await inserted(db, analysis)) ?? (await find(user_id, analysis_id));
      if (row) return row;
      const erased = await db.query("SELECT FROM public.erased_analyses WHERE user_id IN ($1, $2)", [user_id, did]);
      if (erased.length > 0) throw new AppError("gone", "the user or the account of the analysis is erased");
      return analysis;
    },
    find,
    findAmong,
    async newest(user: string, { limit, before = LAST_ID }: KeysetPage): Promise<string[]> {
      const sql = `SELECT analysis_id FROM public.timeline_analyses WHERE user_id = $1 AND analysis_id < $2::uuid
        ORDER BY analysis_id DESC LIMIT $3`;
      const rows = await unlessNoTable(db.query<{ analysis_id: string }>(sql, [user, before, limit]), []);
      return rows.map(({ analysis_id }) => analysis_id);
    },
    /** Returns how many rows were removed, at most a thousand. */
    async removeOlderThan(days: number): Promise<number> {
      const removed = await db.query(
        `DELETE FROM public.timeline_analyses WHERE analysis_id IN (
           SELECT analysis_id FROM public.timeline_analyses WHERE completed_at < ${NOW} - $1::bigint
           ORDER BY completed_at LIMIT ${ROWS_AT_ONCE} FOR UPDATE SKIP LOCKED)
         RETURNING analysis_id`,
        [days * DAY],
      );
      return removed.length;
    },
  };
}

async function inserted(db: Queries, analysis: CompletedAnalysis): Promise<CompletedAnalysis | undefined> {
  const { analysis_id, user_id, did, type, tier, cached, results, request_seq } = analysis;
  const times = TIMES.map((field) => Date.parse(analysis[field]));
  const [row] = await db.query<Row>(
    `INSERT INTO public.timeline_analyses (${COLUMNS})
     SELECT $1::uuid, $2::text, $3::text, $4, $5, $6::bigint, $7::bigint, $8::bigint, $9::boolean, $10::json, $11::bigint
     WHERE NOT EXISTS (SELECT FROM public.erased_analyses WHERE user_id IN ($2::text, $3::text))
     ON CONFLICT (analysis_id) DO NOTHING RETURNING ${COLUMNS}`,
    [analysis_id, user_id, did, type, tier, ...times, cached, JSON.stringify(results), request_seq],
  );
  return row && completedOf(row);
}

function completedOf(row: Row): CompletedAnalysis {
  const times = TIMES.map((field) => [field, new Date(row[field]).toISOString()]);
  return { ...row, ...(Object.fromEntries(times) as Record<Time, string>) };
}
