import { AppError } from "../../kernel/errors.js";
import { SECOND } from "../../kernel/time.js";
import type { Db, Queries } from "../../platform/db/db.js";
import { type Month, monthNamed } from "./ids.js";

/** The retention starts at a time in ms since the epoch; 0 keeps all drops. */
export function createRetentionStore(db: Db) {
  const start = async (): Promise<number> => {
    const [row] = await db.query<{ start: number }>("SELECT kept_since AS start FROM posts.retention");
    return row?.start ?? 0;
  };
  return {
    start,
    raise: async (time: number): Promise<number> => {
      await db.query("UPDATE posts.retention SET kept_since = $1 WHERE kept_since < $1", [time]);
      return start();
    },
  };
}

/** The tables of a month, in the order in which they are dropped: reads go through `drops`. */
const TABLES = ["drops", "reactions", "revisions", "counts"] as const;

/** Rows of these tables are updated soon after they are inserted: the fill factor leaves room on their page. */
const SETTINGS: Partial<Record<(typeof TABLES)[number], string>> = {
  reactions: "WITH (fillfactor = 80)",
  counts: "WITH (fillfactor = 70)",
};

/** Waiting for this lock blocks neither reads nor writes. */
const LOCK_TIMEOUT_MS = 5 * SECOND;

/** The key of the advisory lock is the bytes of "posts". */
const LOCK = 0x70_6f_73_74_73;

type State = "attached" | "detaching" | "detached";

export type PartitionStore = ReturnType<typeof createPartitionStore>;

export function createPartitionStore(db: Db) {
  return {
    /** Says which right is missing, if one of the months has no partitions and the role may make none. */
    lack: (months: readonly Month[]): Promise<string | undefined> => lackOf(db, months),
    /**
     * Makes the missing partitions of a month; resolves to false if none is missing. @throws AppError `unavailable`
     * if the role may not
     */
    make: (month: Month): Promise<boolean> =>
      db.transaction(async (queries) => {
        await queries.run(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
        await queries.query("SELECT pg_advisory_xact_lock($1)", [LOCK]);
        const lack = await lackOf(queries, [month]);
        if (lack !== undefined) throw new AppError("unavailable", lack);
        const states = await readStates(queries, month.name);
        let made = false;
        for (const table of TABLES) {
          const state = states.get(`${table}_${month.name}`);
          if (state === "attached") continue;
          await queries.run(makeScript(table, month, state === undefined));
          made = true;
        }
        return made;
      }),
    months: async (): Promise<Month[]> => {
      const names = new Set([...(await readStates(db, "____\\___")).keys()].map((name) => name.slice(-7)));
      return [...names].sort().flatMap((name) => monthNamed(name) ?? []);
    },
    drop: async ({ name }: Month): Promise<void> => {
      const states = await readStates(db, name);
      for (const table of TABLES) {
        const partition = `${table}_${name}`;
        const state = states.get(partition);
        if (state !== undefined) await dropPartition(db, table, partition, state);
      }
    },
  };
}

async function lackOf(queries: Queries, months: readonly Month[]): Promise<string | undefined> {
  const [rights] = await queries.query<{ mayCreate: boolean; isOwner: boolean }>(RIGHTS);
  if (!rights || (rights.mayCreate && rights.isOwner)) return undefined;
  for (const { name } of months) {
    const states = await readStates(queries, name);
    if (TABLES.every((table) => states.get(`${table}_${name}`) === "attached")) continue;
    const right = rights.mayCreate ? "is not the owner of the table posts.drops" : "lacks CREATE on the schema posts";
    return `the month ${name.replace("_", "-")} has no partitions for drops, and none can be made: the database's role ${right}`;
  }
  return undefined;
}

const RIGHTS = `
SELECT has_schema_privilege('posts', 'CREATE') AS "mayCreate", pg_has_role(relowner, 'USAGE') AS "isOwner"
FROM pg_class WHERE oid = 'posts.drops'::regclass`;

/** ATTACH blocks neither reads nor writes of the parent, as PARTITION OF would (ACCESS EXCLUSIVE). */
function makeScript(table: (typeof TABLES)[number], month: Month, missing: boolean): string {
  const partition = `posts.${table}_${month.name}`;
  const create = `CREATE TABLE ${partition} (LIKE posts.${table} INCLUDING ALL) ${SETTINGS[table] ?? ""};`;
  return `${missing ? create : ""}
    ALTER TABLE posts.${table} ATTACH PARTITION ${partition} FOR VALUES FROM ('${month.firstId}') TO ('${month.endId}');`;
}

/** A process may have died after any of the three steps. */
async function dropPartition(db: Db, table: string, partition: string, state: State): Promise<void> {
  const detach = `ALTER TABLE posts.${table} DETACH PARTITION posts.${partition}`;
  if (state === "attached") await db.run(`${detach} CONCURRENTLY`);
  if (state === "detaching") await db.run(`${detach} FINALIZE`);
  await db.run(`DROP TABLE IF EXISTS posts.${partition}`);
}

async function readStates(queries: Queries, month: string): Promise<Map<string, State>> {
  const rows = await queries.query<{ name: string; state: State }>(
    `SELECT c.relname AS name,
       CASE WHEN i.inhrelid IS NULL THEN 'detached' WHEN i.inhdetachpending THEN 'detaching' ELSE 'attached' END AS state
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
     WHERE n.nspname = 'posts' AND c.relkind = 'r' AND c.relname LIKE ANY ($1::text[])`,
    [TABLES.map((table) => `${table}\\_${month}`)],
  );
  return new Map(rows.map(({ name, state }) => [name, state]));
}
