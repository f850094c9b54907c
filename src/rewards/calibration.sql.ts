import type { Queries } from "../platform/db/db.js";

interface UserRange {
  /** The bound is exclusive; "" is before every user. */
  readonly after: string;
  /** The bound is inclusive; undefined stands for the last user. */
  readonly upTo?: string | undefined;
}

export type CalibrationStore = ReturnType<typeof createCalibrationStore>;

/** Finds users whose total differs from the sum of their transactions. */
export function createCalibrationStore(db: Queries) {
  // A plan that was made for empty tables scans full ones.
  const drifted = async (where: string, params: readonly unknown[]): Promise<string[]> =>
    (await db.query<{ user_id: string }>(driftedWhere(where), params, { eachTime: true })).map(
      ({ user_id }) => user_id,
    );
  return {
    /** The last of the next `count` users with a total; undefined where fewer are left. */
    async endOfNext(after: string, count: number): Promise<string | undefined> {
      const [row] = await db.query<{ user_id: string }>(
        "SELECT user_id FROM public.xp_totals WHERE user_id > $1 ORDER BY user_id OFFSET $2 LIMIT 1",
        [after, count - 1],
        { eachTime: true },
      );
      return row?.user_id;
    },
    driftedIn: ({ after, upTo }: UserRange): Promise<string[]> =>
      upTo === undefined ? drifted("user_id > $1", [after]) : drifted("user_id > $1 AND user_id <= $2", [after, upTo]),
    driftedAmong: (users: readonly string[]): Promise<string[]> => drifted("user_id = ANY($1)", [users]),
  };
}

/** A user may have transactions and no total, or a total and no transactions. */
const driftedWhere = (where: string): string => `
SELECT user_id FROM (SELECT user_id, total FROM public.xp_totals WHERE ${where}) t
FULL JOIN (SELECT user_id, sum(amount) AS total FROM public.xp_transactions WHERE ${where} GROUP BY user_id) s
USING (user_id)
WHERE coalesce(t.total, 0) <> coalesce(s.total, 0)`;
