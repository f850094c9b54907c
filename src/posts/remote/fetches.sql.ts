import { createHash } from "node:crypto";
import { MINUTE } from "../../kernel/time.js";
import { type Db, NOW } from "../../platform/db/db.js";
import { LOCK_TIMEOUT_MS } from "../../platform/db/shared-writes.js";

/** The right to fetch a URI until the lease ends. */
export interface Claim {
  readonly uri: string;
  readonly holder: string;
}

export type Turn =
  | { readonly state: "claimed" | "fetching" | "full" }
  | { readonly state: "failed"; readonly outcome: string; readonly leftMs: number };

/** Maximum number of requests of all processes to one host: under way at once, and begun within a minute. */
export interface HostBounds {
  readonly atOnce: number;
  readonly perMinute: number;
}

export const FETCHES_COUNTED_MS = MINUTE;

export function createFetchStore(db: Db) {
  /** Earlier holders of the host's lock have committed when the statement begins, so that it sees their rows. */
  const locked = <Row>(host: string, sql: string, params: readonly unknown[]): Promise<Row[]> =>
    db.transaction(async (queries) => {
      await queries.query(LOCK, [String(LOCK_TIMEOUT_MS.alone), host]);
      return queries.query<Row>(sql, params);
    });
  return {
    claim: async (
      { uri, holder }: Claim,
      { host, leaseMs, bounds }: { readonly host: string; readonly leaseMs: number; readonly bounds: HostBounds },
    ): Promise<Turn> => {
      const params = [hashOf(uri), host, bounds.atOnce, bounds.perMinute, holder, leaseMs];
      const [row] = await locked<ClaimRow>(host, CLAIM, params);
      if (row?.claimed) return { state: "claimed" };
      if (!row?.known) return { state: "full" };
      return row.outcome === null
        ? { state: "fetching" }
        : { state: "failed", outcome: row.outcome, leftMs: row.left_ms };
    },
    /** Stores the outcome. No process fetches the URI for `forMs`. */
    finish: async ({ uri, holder }: Claim, outcome: string, forMs: number): Promise<void> =>
      void (await db.query(FINISH, [hashOf(uri), holder, outcome, forMs])),
  };
}

interface ClaimRow {
  readonly claimed: boolean;
  readonly known: boolean;
  readonly outcome: string | null;
  readonly left_ms: number;
}

const hashOf = (uri: string): string => createHash("sha256").update(uri).digest("hex");

/** The first key of the advisory locks of hosts is the bytes of "host". */
const LOCKS = 0x68_6f_73_74;
const LOCK = `SELECT set_config('lock_timeout', $1, true), pg_advisory_xact_lock(${LOCKS}, hashtext($2))`;

const HAS_ROOM = `(
  SELECT count(*) FILTER (WHERE h.outcome IS NULL AND h.until > clock.now) < $3::int AND count(*) < $4::int
  FROM posts.fetches h WHERE h.host = $2 AND h.started_at > clock.now - ${FETCHES_COUNTED_MS}
)`;

const CLAIM = `
WITH clock AS MATERIALIZED (SELECT ${NOW} AS now), known AS (
  SELECT f.outcome, f.until - clock.now AS left_ms FROM posts.fetches f, clock
  WHERE f.uri_hash = $1 AND f.until > clock.now
), claimed AS (
  INSERT INTO posts.fetches AS f (uri_hash, host, holder, started_at, until)
  SELECT $1, $2, $5::uuid, clock.now, clock.now + $6::bigint FROM clock
  WHERE NOT EXISTS (SELECT FROM known) AND ${HAS_ROOM}
  ON CONFLICT (uri_hash) DO UPDATE SET host = excluded.host, holder = excluded.holder,
    started_at = excluded.started_at, until = excluded.until, outcome = NULL
  WHERE f.until <= excluded.started_at
  RETURNING 1
)
SELECT EXISTS (SELECT FROM claimed) AS claimed, EXISTS (SELECT FROM known) AS known,
  (SELECT outcome FROM known) AS outcome, (SELECT left_ms FROM known) AS left_ms`;

const FINISH = `
UPDATE posts.fetches SET outcome = $3, until = ${NOW} + $4::bigint WHERE uri_hash = $1 AND holder = $2::uuid`;
