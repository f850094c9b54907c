import { SECOND } from "../kernel/time.js";
import type { Db, Queries } from "../platform/db/db.js";
import { type Month, monthNamed } from "./months.js";
import type { PartitionStore } from "./ports.js";

/** Reads go by `drops`: a month that goes, goes there first. */
const TABLES = ["drops", "reactions", "revisions", "counts"] as const;

/** Rows of these are written again soon, on the page they are on. */
const SETTINGS: Partial<Record<(typeof TABLES)[number], string>> = {
  reactions: "WITH (fillfactor = 80)",
  counts: "WITH (fillfactor = 70)",
};

/** Who waits for this lock holds up neither reads nor writes. */
const LOCK_TIMEOUT_MS = 5 * SECOND;

/** Any number that nobody else takes as an advisory lock: the bytes of "posts". */
const LOCK = 0x70_6f_73_74_73;

type State = "attached" | "detaching" | "detached";

/** The monthly partitions of the four tables; see the migrations. */
export function createPartitionStore(db: Db): PartitionStore {
  return {
    make: (month) =>
      db.transaction(async (queries) => {
        await queries.run(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
        // What two processes want to make at once is made by one.
        await queries.query("SELECT pg_advisory_xact_lock($1)", [LOCK]);
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
    months: async () => {
      const names = new Set([...(await readStates(db, "____\\___")).keys()].map((name) => name.slice(-7)));
      return [...names].sort().flatMap((name) => monthNamed(name) ?? []);
    },
    drop: async ({ name }) => {
      const states = await readStates(db, name);
      for (const table of TABLES) {
        const partition = `${table}_${name}`;
        const state = states.get(partition);
        if (state !== undefined) await drop(db, table, partition, state);
      }
    },
  };
}

/**
 * Made beside its parent and then attached, which holds up neither reads nor writes of the parent, as making it as a
 * partition would (ACCESS EXCLUSIVE). It is empty, so that there is nothing to be checked.
 */
function makeScript(table: (typeof TABLES)[number], month: Month, missing: boolean): string {
  const partition = `posts.${table}_${month.name}`;
  const create = `CREATE TABLE ${partition} (LIKE posts.${table} INCLUDING ALL) ${SETTINGS[table] ?? ""};`;
  return `${missing ? create : ""}
    ALTER TABLE posts.${table} ATTACH PARTITION ${partition} FOR VALUES FROM ('${month.firstId}') TO ('${month.endId}');`;
}

/** Three steps, of which each may have been the last one of a process that died. */
async function drop(db: Db, table: string, partition: string, state: State): Promise<void> {
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
