import { DAY } from "../kernel/time.js";
import { type Db, NOW, type Queries } from "../platform/db/db.js";
import { SQLSTATE, sqlState } from "../platform/db/errors.js";
import type { CompletedAnalysis } from "./saga.js";

/** @throws AppError `unavailable` while the database is unavailable */
export interface AnalysisStore {
  /** Returns the row that stands: an analysis is completed once. */
  insert(analysis: CompletedAnalysis): Promise<CompletedAnalysis>;
  find(user: string, analysis: string): Promise<CompletedAnalysis | undefined>;
  findAmong(user: string, analyses: readonly string[]): Promise<ReadonlyMap<string, CompletedAnalysis>>;
  /** Returns the ids of the user's newest, newest first; `before` excludes that id and the newer ones. */
  newest(user: string, page: { readonly limit: number; readonly before?: string | undefined }): Promise<string[]>;
  /** Returns how many rows were removed, at most a thousand. */
  removeOlderThan(days: number): Promise<number>;
}

type Row = { readonly [Field in keyof CompletedAnalysis]: CompletedAnalysis[Field] } & Times;
interface Times {
  readonly requested_at: never;
  readonly started_at: never;
  readonly completed_at: never;
}

const TIMES = ["requested_at", "started_at", "completed_at"] as const;
const ROWS_AT_ONCE = 1_000;
const LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff";

const COLUMNS = `analysis_id, user_id, did, type, tier, requested_at, started_at, completed_at, cached, results,
  request_seq`;

export function createAnalysisStore(db: Db): AnalysisStore {
  const findAmong = async (user: string, ids: readonly string[]): Promise<Map<string, CompletedAnalysis>> => {
    const found = await unlessMissing(() =>
      db.query<Row>(
        `SELECT ${COLUMNS} FROM public.timeline_analyses WHERE analysis_id = ANY($1::uuid[]) AND user_id = $2`,
        [ids, user],
      ),
    );
    return new Map(found.map((row) => [row.analysis_id, completedOf(row)]));
  };
  const find = async (user: string, id: string) => (await findAmong(user, [id])).get(id);
  return {
    async insert(analysis) {
      return (await inserted(db, analysis)) ?? (await find(analysis.user_id, analysis.analysis_id)) ?? analysis;
    },
    find,
    findAmong,
    async newest(user, { limit, before = LAST_ID }) {
      const rows = await unlessMissing(() =>
        db.query<{ analysis_id: string }>(
          `SELECT analysis_id FROM public.timeline_analyses WHERE user_id = $1 AND analysis_id < $2::uuid
           ORDER BY analysis_id DESC LIMIT $3`,
          [user, before, limit],
        ),
      );
      return rows.map(({ analysis_id }) => analysis_id);
    },
    async removeOlderThan(days) {
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
    `INSERT INTO public.timeline_analyses (${COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::json, $11)
     ON CONFLICT (analysis_id) DO NOTHING RETURNING ${COLUMNS}`,
    [analysis_id, user_id, did, type, tier, ...times, cached, JSON.stringify(results), request_seq],
  );
  return row && completedOf(row);
}

function completedOf(row: Row): CompletedAnalysis {
  const times = Object.fromEntries(TIMES.map((field) => [field, new Date(row[field]).toISOString()]));
  return { ...row, ...times };
}

/** A gateway may read before the first worker has made the table. */
async function unlessMissing<T>(work: () => Promise<T[]>): Promise<T[]> {
  try {
    return await work();
  } catch (error) {
    if (sqlState(error) === SQLSTATE.undefinedTable) return [];
    throw error;
  }
}
