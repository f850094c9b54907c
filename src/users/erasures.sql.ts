import { draftIn, draftOf, type EventDraft, insertEvents } from "../contracts/outbox.js";
import type { Erasure, ErasureStep } from "../gen/avion/users.js";
import { encodeId } from "../kernel/ids.js";
import { MINUTE, SECOND } from "../kernel/time.js";
import { type Db, NOW } from "../platform/db/db.js";
import { traceHeaders } from "../telemetry/spans.js";
import { isNotErased } from "./erased.sql.js";
import { TABLES } from "./reads.sql.js";

/** The stream knows a message id for ten minutes from its publication on. */
const ANNOUNCED_AGAIN_AFTER_MS = 11 * MINUTE;

/** The older an erasure that waits for a part, the less often it is looked at. */
const LOOKS = { youngMs: SECOND, partOfAge: 20, oldMs: MINUTE };

const NAMING = [
  ...Object.values(TABLES).flatMap(({ edges, counts, owner, other }) => [
    [edges, owner],
    [edges, other],
    [counts, "user_id"],
  ]),
  ["users.relations", "user_id"],
  ["users.relations", "target_id"],
  ["users.profiles", "user_id"],
  ["users.approvals", "user_id"],
  ["users.lists", "user_id"],
  ["users.list_members", "user_id"],
  ["users.list_members", "member_id"],
];

const isKnown = (id: string): string =>
  NAMING.map(([table, column]) => `EXISTS (SELECT FROM ${table} n WHERE n.${column} = ${id})`).join(" OR ");

/** The erasure of an unknown user is announced only if a row of a write that began before turns up. */
const UNKNOWN = "completed_at IS NULL AND announced_at = 0";

/** A user who was unknown is erased now. */
const ERASE = `
WITH erased AS (
  INSERT INTO users.erasures AS x (user_id, version, requested_at) SELECT $1, now, now FROM users.now_ms() AS now
  ON CONFLICT (user_id) DO UPDATE SET completed_at = NULL, due_at = 0 WHERE x.announced_at = 0
  RETURNING user_id, version
), steps AS (
  INSERT INTO users.erasure_steps (user_id, name) SELECT user_id, name FROM erased, unnest($2::text[]) AS name
  ON CONFLICT DO NOTHING
)
SELECT version FROM erased`;

const REFUSE_UNKNOWN = `
WITH looked AS (SELECT ${isKnown("$1")} AS known), refused AS (
  INSERT INTO users.erasures (user_id, version, requested_at, due_at)
  SELECT $1, now, now, now + ${SECOND} FROM users.now_ms() AS now, looked WHERE NOT known ON CONFLICT (user_id) DO NOTHING
)
SELECT known FROM looked`;

const UNKNOWN_DUE = `
SELECT user_id FROM users.erasures WHERE ${UNKNOWN} AND due_at <= (SELECT ${NOW}) ORDER BY due_at LIMIT $1`;

const COMPLETE_UNKNOWN = `
WITH looked AS MATERIALIZED (
  SELECT x.user_id, ${isKnown("x.user_id")} AS known FROM users.erasures x WHERE x.user_id = ANY ($1::text[]) AND ${UNKNOWN}
), completed AS (
  UPDATE users.erasures x SET completed_at = users.now_ms() FROM looked
  WHERE x.user_id = looked.user_id AND NOT looked.known AND x.announced_at = 0
)
SELECT user_id FROM looked WHERE known`;

/** Writes the event, unless the last one waits in the outbox or the stream may still know its message id. */
const ANNOUNCE = `
WITH e AS (
  SELECT user_id, event_id FROM users.erasures
  WHERE user_id = $1 AND completed_at IS NULL AND announced_at < users.now_ms() - ${ANNOUNCED_AGAIN_AFTER_MS}
    AND NOT EXISTS (SELECT FROM public.outbox o WHERE o.id = event_id AND o.published_at IS NULL)
  FOR UPDATE
), gone AS (
  DELETE FROM public.outbox o USING e WHERE o.id = e.event_id
), event AS (${insertEvents("users", draftIn("$2::json"), "e")} RETURNING id)
UPDATE users.erasures x SET event_id = event.id, announced_at = users.now_ms()
FROM event WHERE x.user_id = $1 RETURNING 1`;

const GET = `
SELECT e.user_id, e.requested_at, coalesce(e.completed_at, 0) AS completed_at,
  coalesce(json_agg(json_build_object('name', s.name, 'done', s.done_at IS NOT NULL, 'left', s.left_rows))
    FILTER (WHERE s.name IS NOT NULL), '[]') AS steps
FROM users.erasures e LEFT JOIN users.erasure_steps s ON s.user_id = e.user_id WHERE e.user_id = $1 GROUP BY e.user_id`;

/** Several processes share the erasures that are due, people first. One row without a user says that none is. */
const CLAIM = `
WITH due AS (
  SELECT user_id FROM users.erasures WHERE completed_at IS NULL AND announced_at > 0 AND due_at <= (SELECT ${NOW})
  ORDER BY strpos(user_id, '://') > 0, due_at LIMIT $1 FOR UPDATE SKIP LOCKED
), claimed AS (
  UPDATE users.erasures x
  SET due_at = ${NOW}
    + least(greatest(${LOOKS.youngMs}, (${NOW} - x.requested_at) / ${LOOKS.partOfAge}), ${LOOKS.oldMs})
  FROM due WHERE x.user_id = due.user_id RETURNING x.user_id, x.version
)
SELECT claimed.*, o."oldestMs"
FROM (SELECT coalesce(${NOW} - min(requested_at), 0) AS "oldestMs" FROM users.erasures WHERE completed_at IS NULL) o
LEFT JOIN claimed ON true`;

/** A finished step stays finished, though a part that gets the event again forgets the user again. */
const STEP = `
INSERT INTO users.erasure_steps AS s (user_id, name, left_rows, done_at)
VALUES ($1, $2, $3, CASE WHEN $4 THEN users.now_ms() END)
ON CONFLICT (user_id, name) DO UPDATE
SET left_rows = CASE WHEN s.done_at IS NULL THEN excluded.left_rows ELSE 0 END,
  done_at = coalesce(s.done_at, excluded.done_at)`;

/** The event names the user, so it is removed, too. */
const COMPLETE = `
WITH e AS (
  SELECT user_id, event_id FROM users.erasures x WHERE user_id = $1 AND completed_at IS NULL
    AND NOT EXISTS (SELECT FROM public.outbox o WHERE o.id = x.event_id AND o.published_at IS NULL)
  FOR UPDATE
), gone AS (
  DELETE FROM public.outbox o USING e WHERE o.id = e.event_id
)
UPDATE users.erasures x SET completed_at = users.now_ms() FROM e WHERE x.user_id = e.user_id RETURNING 1`;

export interface RunningErasure {
  readonly user_id: string;
  readonly version: number;
}

type Claimed = (RunningErasure | { readonly user_id: null }) & { readonly oldestMs: number };

export type StoredErasure = Pick<Erasure, "user_id" | "requested_at" | "completed_at"> & {
  readonly steps: readonly ErasureStep[];
};

export type ErasureStore = ReturnType<typeof createErasureStore>;

export function createErasureStore(db: Db) {
  const announce = async ({ query }: Pick<Db, "query">, { user_id, version }: RunningErasure): Promise<boolean> =>
    (await query(ANNOUNCE, [user_id, JSON.stringify(erasedEvent(user_id, version))])).length > 0;
  return {
    /** Resolves to false if the user is erased already. The steps have not begun. */
    erase: (user_id: string, steps: readonly string[]): Promise<boolean> =>
      db.transaction(async (queries) => {
        const [row] = await queries.query<{ version: number }>(ERASE, [user_id, steps]);
        return row !== undefined && announce(queries, { user_id, version: row.version });
      }),
    /** Refuses the id from now on if nothing names the user; resolves to whether something does. */
    refuseUnknown: async (user: string): Promise<boolean> =>
      (await db.query<{ known: boolean }>(REFUSE_UNKNOWN, [user]))[0]?.known ?? false,
    /** Returns users who were unknown when they were refused. */
    unknownDue: async (limit: number): Promise<string[]> =>
      (await db.query<{ user_id: string }>(UNKNOWN_DUE, [limit])).map(({ user_id }) => user_id),
    /** Resolves to those of them whom a row names by now. */
    completeUnknown: async (users: readonly string[]): Promise<string[]> =>
      (await db.query<{ user_id: string }>(COMPLETE_UNKNOWN, [users])).map(({ user_id }) => user_id),
    isErased: async (user: string): Promise<boolean> =>
      (await db.query<{ erased: boolean }>(`SELECT NOT (${isNotErased("$1")}) AS erased`, [user]))[0]?.erased ?? false,
    get: async (user: string): Promise<StoredErasure | undefined> => (await db.query<StoredErasure>(GET, [user]))[0],
    /** Takes erasures that are due; `oldestMs` is the age of the oldest one that runs. */
    claim: async (limit: number) => {
      const rows = await db.query<Claimed>(CLAIM, [limit]);
      const claimed = rows.flatMap(({ oldestMs: _, ...row }) => (row.user_id === null ? [] : [row]));
      return { claimed, oldestMs: rows[0]?.oldestMs ?? 0 };
    },
    release: async (user: string): Promise<void> => {
      await db.query("UPDATE users.erasures SET due_at = users.now_ms() WHERE user_id = $1", [user]);
    },
    setStep: async (user: string, { name, done, left: remaining }: ErasureStep): Promise<void> => {
      await db.query(STEP, [user, name, remaining, done]);
    },
    /** Resolves to whether the event was written again, so that a part that has lost it gets it. */
    announceAgain: (erasure: RunningErasure): Promise<boolean> => announce(db, erasure),
    /** Resolves to false if the event is not published yet, or another process has completed the erasure. */
    complete: async (user: string): Promise<boolean> => (await db.query(COMPLETE, [user])).length > 0,
  };
}

function erasedEvent(user_id: string, version: number): EventDraft {
  const token = encodeId(user_id);
  const event = { name: "user_erased", payload: { user_id, version } } as const;
  return draftOf(event, { owner: token, key: token, traceparent: traceHeaders()["traceparent"] });
}
