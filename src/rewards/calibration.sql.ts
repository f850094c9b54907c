import { PLANNED_EACH_TIME, type Queries } from "../platform/db/db.js";

const USERS_A_STEP = 1_000;
const STEPS = 10;
const MAX_KNOWN = 10_000;

/** Each call compares the next users, and again those who differed. Returns how many are known to differ. */
export function createCalibration(
  db: Queries,
  { users = USERS_A_STEP, steps = STEPS }: { readonly users?: number; readonly steps?: number } = {},
): () => Promise<number> {
  let known = new Set<string>();
  let after = "";
  const usersOf = async (sql: string, ...params: readonly unknown[]): Promise<string[]> => {
    const rows = await db.query<{ user_id: string }>(sql, params, PLANNED_EACH_TIME);
    return rows.map(({ user_id }) => user_id);
  };
  return async () => {
    if (known.size > 0) known = new Set(await usersOf(driftedWhere("user_id = ANY($1)"), [...known]));
    for (let step = 0; step < steps; step++) {
      const [upTo] = await usersOf(LAST_OF_NEXT, after, users - 1);
      const drifted = await (upTo === undefined
        ? usersOf(driftedWhere("user_id > $1"), after)
        : usersOf(driftedWhere("user_id > $1 AND user_id <= $2"), after, upTo));
      for (const user of drifted) if (known.size < MAX_KNOWN) known.add(user);
      after = upTo ?? "";
      if (upTo === undefined) break;
    }
    return known.size;
  };
}

const LAST_OF_NEXT = "SELECT user_id FROM public.xp_totals WHERE user_id > $1 ORDER BY user_id OFFSET $2 LIMIT 1";

/** A user may have transactions and no total, or a total and no transactions. */
const driftedWhere = (where: string): string => `
SELECT user_id FROM (SELECT user_id, total FROM public.xp_totals WHERE ${where}) t
FULL JOIN (SELECT user_id, sum(amount) AS total FROM public.xp_transactions WHERE ${where} GROUP BY user_id) s
USING (user_id)
WHERE coalesce(t.total, 0) <> coalesce(s.total, 0)`;
