import { SUBJECT_OF } from "../contracts/events.js";
import { insertEvents, withVersion } from "../contracts/outbox.js";
import { type KnownStanding, STANDING_NAMES, subjectToken } from "../contracts/standings.js";
import { Standing, type StandingEntry } from "../gen/avion/users.js";
import { type Db, NOW } from "../platform/db/db.js";
import { traceHeaders } from "../telemetry/spans.js";
import { erasedConflict, isNotErased } from "./erased.sql.js";

/** Exactly one of the two is not "". */
export interface StoredSubject {
  readonly user_id: string;
  readonly host: string;
}

export interface WantedStanding extends StoredSubject {
  readonly standing: KnownStanding;
  readonly until: number;
  readonly reason: string;
  readonly by: string;
}

const EVENT = withVersion(
  {
    owner: "$7",
    key: "'standing:' || $7",
    subject: `'${SUBJECT_OF.standing_changed}'`,
    messageId: "'standing_changed:' || $7",
    body: "$8::jsonb || jsonb_build_object('version', written.version)",
    traceparent: "$9",
  },
  "written.version",
);

/** Setting the standing that is in force, or ending none, writes nothing. */
const SET = `
WITH written AS (
  INSERT INTO users.standings AS s (user_id, host, standing, until, reason, set_by, version, changed_at)
  SELECT $1, $2, $3::smallint, $4::bigint, $5, $6, now, now FROM (SELECT ${NOW} AS now) clock
  WHERE ${isNotErased("$1")} AND ($3::smallint > ${Standing.ACTIVE} OR EXISTS (
    SELECT FROM users.standings b WHERE b.user_id = $1 AND b.host = $2))
  ON CONFLICT (user_id, host) DO UPDATE
  SET standing = excluded.standing, until = excluded.until, reason = excluded.reason, set_by = excluded.set_by,
    version = GREATEST(s.version + 1, excluded.version), changed_at = GREATEST(s.changed_at, excluded.changed_at)
  WHERE (s.standing, s.until, s.reason, s.set_by) IS DISTINCT FROM
    (excluded.standing, excluded.until, excluded.reason, excluded.set_by)
  RETURNING s.version
), event AS (${insertEvents("users", EVENT, "written")})
SELECT version FROM written`;

const STATE = `
SELECT NOT (${isNotErased("$1")}) AS erased,
  coalesce((SELECT version FROM users.standings WHERE user_id = $1 AND host = $2), 0) AS version`;

const COLUMNS = "user_id, host, standing, until, version, reason, set_by AS by, changed_at";
const IN_FORCE = `standing > ${Standing.ACTIVE} AND (until = 0 OR until > (SELECT ${NOW}))`;

const OF = `
SELECT ${COLUMNS} FROM users.standings
WHERE (user_id = $1 AND host = '' OR user_id = '' AND host = ANY($2::text[])) AND ${IN_FORCE}
ORDER BY standing DESC, host LIMIT 1`;

const LISTED = `
SELECT ${COLUMNS} FROM users.standings WHERE (user_id, host) > ($1, $2) AND ${IN_FORCE} ORDER BY user_id, host LIMIT $3`;

const CHANGES = `
SELECT ${COLUMNS} FROM users.standings
WHERE (changed_at, user_id, host) > ($1, $2, $3) AND changed_at < $4 ORDER BY changed_at, user_id, host LIMIT $5`;

export type StandingPosition = readonly [changedAt: number, userId: string, host: string];

export type StandingStore = ReturnType<typeof createStandingStore>;

export function createStandingStore(db: Pick<Db, "query">) {
  return {
    /** @throws AppError `conflict` if the user is erased */
    set: async ({ user_id, host, standing, until, reason, by }: WantedStanding) => {
      const subject = host === "" ? { user_id } : { host };
      const body = JSON.stringify({ ...subject, standing: STANDING_NAMES[standing], until });
      const values = [user_id, host, standing, until, reason, by, subjectToken(subject), body];
      const [written] = await db.query<{ version: number }>(SET, [...values, traceHeaders()["traceparent"] ?? null]);
      if (written !== undefined) return { changed: true, version: written.version };
      const [state] = await db.query<{ erased: boolean; version: number }>(STATE, [user_id, host]);
      if (state?.erased) throw erasedConflict("user_id");
      return { changed: false, version: state?.version ?? 0 };
    },
    /** Returns the strictest standing in force of a user ("": none) and of some hosts. */
    of: async (user: string, hosts: readonly string[]): Promise<StandingEntry | undefined> =>
      (await db.query<StandingEntry>(OF, [user, hosts]))[0],
    list: ({ user_id, host }: StoredSubject, limit: number): Promise<StandingEntry[]> =>
      db.query<StandingEntry>(LISTED, [user_id, host, limit]),
    /** The times are those of the database's clock, in ms. */
    changes: (after: StandingPosition, until: number, limit: number): Promise<StandingEntry[]> =>
      db.query<StandingEntry>(CHANGES, [...after, until, limit]),
  };
}
