import { SUBJECT_OF } from "../contracts/events.js";
import { encodeId } from "../kernel/ids.js";
import { type Db, PLANNED_EACH_TIME } from "../platform/db/db.js";
import type { ListName } from "../state/index.js";
import { TABLES, type Table } from "./reads.sql.js";

const ROWS_AT_ONCE = 1_000;

/** More than this are not counted. */
const MOST_COUNTED = 1_000_000;

/** Processes of an earlier version read the revision of a count. */
const ENDS = {
  following: "following = GREATEST(c.following - 1, 0)",
  followers: "followers = GREATEST(c.followers - 1, 0), delta = -1, revision = c.revision + 1",
} as const satisfies Record<ListName, string>;

/**
 * The rows stay, inactive, until the cached lists are discarded: they say whose lists those are. Counts are locked in
 * the order of their keys, as by those who follow.
 */
const endEdges = ({ edges, counts, owner, other }: Table, end: string): string => `
WITH batch AS (
  SELECT ${owner} FROM ${edges} WHERE ${other} = $1 AND active LIMIT ${ROWS_AT_ONCE} FOR UPDATE SKIP LOCKED
), ended AS (
  UPDATE ${edges} f SET active = false, changed_at = users.now_ms()
  FROM batch WHERE f.${owner} = batch.${owner} AND f.${other} = $1 RETURNING f.${owner} AS user_id
), locked AS (
  SELECT c.user_id FROM ${counts} c WHERE c.user_id IN (SELECT user_id FROM ended) ORDER BY c.user_id FOR UPDATE
), counted AS (
  UPDATE ${counts} c SET ${end} FROM locked WHERE c.user_id = locked.user_id
)
SELECT count(*) AS rows FROM ended`;

const endedOwners = ({ edges, owner, other }: Table): string =>
  `SELECT ${owner} AS id FROM ${edges} WHERE ${other} = $1 AND NOT active LIMIT ${ROWS_AT_ONCE}`;

const removeEnded = ({ edges, owner, other }: Table): string => `
WITH gone AS (DELETE FROM ${edges} WHERE ${other} = $1 AND ${owner} = ANY($2::text[]) AND NOT active RETURNING 1)
SELECT count(*) AS rows FROM gone`;

const remove = (table: string, column: string, key: readonly string[], before = ""): string => `
WITH ${before}batch AS (
  SELECT ${key.join(", ")} FROM ${table} WHERE ${column} = $1 LIMIT ${ROWS_AT_ONCE} FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM ${table} e USING batch WHERE ${key.map((name) => `e.${name} = batch.${name}`).join(" AND ")} RETURNING 1
)
SELECT count(*) AS rows FROM gone`;

const count = (table: string, column: string): string =>
  `SELECT count(*) AS rows FROM (SELECT FROM ${table} WHERE ${column} = $1 LIMIT ${MOST_COUNTED}) found`;

const RELATION_KEY = ["user_id", "target_id", "kind"];

const PROFILE = `
WITH profile AS (DELETE FROM users.profiles WHERE user_id = $1),
approval AS (DELETE FROM users.approvals WHERE user_id = $1),
standing AS (DELETE FROM users.standings WHERE user_id = $1 AND host = ''),
following AS (DELETE FROM users.following_counts WHERE user_id = $1)
DELETE FROM users.follower_counts WHERE user_id = $1`;

const LISTS = "SELECT list_id AS id FROM users.lists WHERE user_id = $1";

const LIST = `
WITH members AS (DELETE FROM users.list_members WHERE list_id = $1)
DELETE FROM users.lists WHERE list_id = $1`;

const EVENTS_UP_TO = "SELECT coalesce(max(id), 0) AS id FROM public.outbox";

/**
 * Published events have no index. The last two parts of a key are tokens of users. The announcement of an erasure
 * stays.
 */
const EVENTS = `
WITH part AS (
  SELECT max(id) AS id FROM (
    SELECT id FROM public.outbox WHERE id > $2 AND id <= $3 ORDER BY id LIMIT ${ROWS_AT_ONCE}
  ) looked
), gone AS (
  DELETE FROM public.outbox o USING part
  WHERE o.id > $2 AND o.id <= part.id AND o.source IN ('users', 'edges', 'requests') AND o.subject <> '${SUBJECT_OF.user_erased}'
    AND $1::text = ANY ((string_to_array(o.key, ':'))[greatest(array_length(string_to_array(o.key, ':'), 1) - 1, 1):])
)
SELECT id FROM part`;

export type ErasureRows = ReturnType<typeof createErasureRows>;

/** Each statement removes or changes at most a thousand rows; rows that another process has in hand are skipped. */
export function createErasureRows(db: Pick<Db, "query">) {
  const rowsOf = async (sql: string, ...params: readonly unknown[]): Promise<number> =>
    (await db.query<{ rows: number }>(sql, params, PLANNED_EACH_TIME))[0]?.rows ?? 0;
  return {
    endEdges: (list: ListName, user: string) => rowsOf(endEdges(TABLES[list], ENDS[list]), user),
    endedOwners: async (list: ListName, user: string): Promise<string[]> =>
      (await db.query<{ id: string }>(endedOwners(TABLES[list]), [user], PLANNED_EACH_TIME)).map(({ id }) => id),
    removeEnded: (list: ListName, user: string, owners: readonly string[]) =>
      rowsOf(removeEnded(TABLES[list]), user, owners),
    countNaming: (list: ListName, user: string) => rowsOf(count(TABLES[list].edges, TABLES[list].other), user),
    /** Removes a part of the user's own list, and the count with the first part: the maintenance would correct it. */
    removeOwn: (list: ListName, user: string) => {
      const { edges, counts, owner, other } = TABLES[list];
      const before = `counted AS (DELETE FROM ${counts} WHERE user_id = $1), `;
      return rowsOf(remove(edges, owner, [owner, other], before), user);
    },
    countOwn: (list: ListName, user: string) => rowsOf(count(TABLES[list].edges, TABLES[list].owner), user),
    removeRelations: (by: "user_id" | "target_id", user: string) =>
      rowsOf(remove("users.relations", by, RELATION_KEY), user),
    countRelations: (by: "user_id" | "target_id", user: string) => rowsOf(count("users.relations", by), user),
    /** Removes the user's counts, too: nothing that they count is left. */
    removeProfile: async (user: string): Promise<void> => void (await db.query(PROFILE, [user])),
    listsOf: async (user: string): Promise<string[]> =>
      (await db.query<{ id: string }>(LISTS, [user])).map(({ id }) => id),
    removeList: async (list: string): Promise<void> => void (await db.query(LIST, [list])),
    removeMembers: (by: "user_id" | "member_id", user: string) =>
      rowsOf(remove("users.list_members", by, ["list_id", "member_id"]), user),
    countMembers: (by: "user_id" | "member_id", user: string) => rowsOf(count("users.list_members", by), user),
    lastEvent: async (): Promise<number> => (await db.query<{ id: number }>(EVENTS_UP_TO))[0]?.id ?? 0,
    /** Looks at the events after an id, of those up to `last`. Resolves to the last one looked at, if any. */
    removeEvents: async (user: string, after: number, last: number): Promise<number | undefined> =>
      (await db.query<{ id: number | null }>(EVENTS, [encodeId(user), after, last], PLANNED_EACH_TIME))[0]?.id ??
      undefined,
  };
}
