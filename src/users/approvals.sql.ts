import { MINUTE } from "../kernel/time.js";
import { type Db, NOW, type Queries } from "../platform/db/db.js";
import { LOCK_TIMEOUT_MS } from "../platform/db/shared-writes.js";
import { erasedConflict, isNotErased } from "./erased.sql.js";
import { BLOCKED, REQUESTED, setAll } from "./set-edges.sql.js";

/** SQL expression: true if the user of a row named `p` approves followers. */
export const APPROVES = "EXISTS (SELECT FROM users.approvals a WHERE a.user_id = p.user_id AND a.approves)";

/**
 * Returns a statement that sets whether a user approves followers; NULL leaves it as it is. Only who approves, or did so
 * lately, has a row. Switching it off makes its acceptances due.
 */
export const writeApproval = (user: string, approves: string): string => `
INSERT INTO users.approvals AS a (user_id, approves) SELECT ${user}, ${approves}
WHERE CASE WHEN ${approves} THEN true ELSE EXISTS (
  SELECT FROM users.approvals WHERE user_id = ${user} AND ${approves} IS NOT NULL
) END AND ${isNotErased(user)}
ON CONFLICT (user_id) DO UPDATE SET approves = excluded.approves,
  accept_until = CASE WHEN a.approves AND NOT excluded.approves THEN ${NOW} ELSE a.accept_until END,
  due_at = CASE WHEN a.approves AND NOT excluded.approves THEN ${NOW} ELSE a.due_at END`;

const SET = `WITH approval AS (${writeApproval("$1", "$2::boolean")}) SELECT ${isNotErased("$1")} AS set`;

/** Processes take different users. After a turn a user goes to the end of the queue. */
const DUE = `
SELECT user_id, approves, accept_until FROM users.approvals WHERE due_at > 0 AND due_at <= (SELECT ${NOW})
ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED`;

/** Requests made after the switch are accepted, too, unless approval is on again: their statements began before it. */
const REQUESTS = `
SELECT f.follower_id, coalesce(c.following, 0) < $4::int AS fits
FROM users.followings f LEFT JOIN users.following_counts c ON c.user_id = f.follower_id
WHERE f.following_id = $1 AND ${REQUESTED} AND (f.requested_at <= $2 OR NOT $3::boolean)
  AND NOT ${BLOCKED} AND ${isNotErased("f.follower_id", "f.following_id")}
ORDER BY f.requested_at, f.follower_id LIMIT $5`;

/** A statement that began before the switch may store a request; it ends within a minute. The last look follows then. */
const AFTER_TURN = `
UPDATE users.approvals a SET due_at = CASE
  WHEN $2::boolean THEN ${NOW} WHEN accept_until + ${MINUTE} > ${NOW} THEN accept_until + ${MINUTE} ELSE 0 END
WHERE user_id = $1`;

const FORGET = "DELETE FROM users.approvals WHERE user_id = $1 AND due_at = 0 AND NOT approves";

interface Due {
  readonly user_id: string;
  readonly approves: boolean;
  readonly accept_until: number;
}

interface Turn {
  /** Users whose requests are accepted. */
  readonly followers: readonly string[];
  readonly withdrawn: number;
}

export type ApprovalStore = ReturnType<typeof createApprovalStore>;

export function createApprovalStore(db: Db) {
  return {
    /** @throws AppError `conflict` if the user is erased */
    set: async (user: string, approves: boolean): Promise<void> => {
      const [row] = await db.query<{ set: boolean }>(SET, [user, approves]);
      if (!row?.set) throw erasedConflict("user_id");
    },
    /**
     * Accepts at most `limit` requests of one user who has switched approval off. Those of users who follow `most` others
     * are removed. Resolves to undefined if nothing is due.
     */
    accept: (limit: number, most: number): Promise<Turn | undefined> =>
      db.transaction(async (queries) => {
        const [due] = await queries.query<Due>(DUE);
        return due && acceptOf(queries, due, { limit, most });
      }),
  };
}

async function acceptOf(
  queries: Queries,
  { user_id, approves, accept_until }: Due,
  { limit, most }: { readonly limit: number; readonly most: number },
): Promise<Turn> {
  const values = [user_id, accept_until, approves, most, limit];
  const requests = await queries.query<{ follower_id: string; fits: boolean }>(REQUESTS, values);
  const edges = requests.map(({ follower_id, fits }) => {
    const pair = { follower_id, following_id: user_id };
    return fits ? { ...pair, wanted: true, accepts: true, most } : { ...pair, wanted: false, most };
  });
  const set = edges.length === 0 ? [] : await setAll(queries, edges, LOCK_TIMEOUT_MS.alone);
  await queries.query(AFTER_TURN, [user_id, requests.length === limit]);
  await queries.query(FORGET, [user_id]);
  const followers = edges.flatMap(({ follower_id }, n) => (set[n]?.moved ? follower_id : []));
  return { followers, withdrawn: edges.filter(({ wanted }, n) => !wanted && set[n]?.changed).length };
}
