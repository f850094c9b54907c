import { type Db, NOW, PLANNED_EACH_TIME } from "../../platform/db/db.js";
import { untilOlderEnded } from "../../platform/db/older-transactions.js";
import type { AnalysisKey } from "../requests.nats.js";

export type ErasedRows = ReturnType<typeof createErasedRows>;

const ROWS_AT_ONCE = 1_000;

/** Everything rejects with AppError `unavailable` while the database is unavailable. */
export function createErasedRows(db: Db) {
  return {
    /** Once this resolves, no row by or about the user is added. */
    async refuse(user: string, stopping: AbortSignal): Promise<void> {
      await db.query(
        `INSERT INTO public.erased_analyses (user_id, marked_at) VALUES ($1, ${NOW}) ON CONFLICT (user_id) DO NOTHING`,
        [user],
      );
      await untilOlderEnded(db, { stopping });
    },
    async count(user: string): Promise<number> {
      const [row] = await db.query<{ rows: number }>(
        "SELECT count(*) AS rows FROM public.timeline_analyses WHERE user_id = $1 OR did = $1",
        [user],
        PLANNED_EACH_TIME,
      );
      return row?.rows ?? 0;
    },
    some: (user: string) =>
      db.query<AnalysisKey>(
        `(SELECT user_id, analysis_id FROM public.timeline_analyses WHERE user_id = $1 LIMIT ${ROWS_AT_ONCE})
         UNION (SELECT user_id, analysis_id FROM public.timeline_analyses WHERE did = $1 LIMIT ${ROWS_AT_ONCE})
         LIMIT ${ROWS_AT_ONCE}`,
        [user],
        PLANNED_EACH_TIME,
      ),
    async remove(analyses: readonly AnalysisKey[]): Promise<void> {
      await db.query("DELETE FROM public.timeline_analyses WHERE analysis_id = ANY($1::uuid[])", [
        analyses.map(({ analysis_id }) => analysis_id),
      ]);
    },
  };
}
