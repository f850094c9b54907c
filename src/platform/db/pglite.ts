import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { PGlite, parse, protocol, types } from "@electric-sql/pglite";
import { dataDir as preparedCluster } from "@electric-sql/pglite-prepopulatedfs";
import pLimit from "p-limit";
import { AppError } from "../../kernel/errors.js";
import { tryLockFile } from "../../kernel/lock-file.js";
import { MINUTE } from "../../kernel/time.js";
import type { Db, Queries } from "./db.js";
import { retryConflicts } from "./errors.js";

export interface PgliteOptions {
  /** The database is in memory if this is unset. */
  readonly folder?: string;
}

/** Nothing analyzes tables here: a plan made for few rows would scan very many later. Every statement has an index. */
const SETTINGS = "SET enable_seqscan = off";

/** No autovacuum runs here: the outbox would grow without end. */
const VACUUM_EVERY_MS = MINUTE;

/**
 * Statements and transactions run one after another. Without fsync, commits survive the end of the process, but not of
 * the machine. @throws AppError `conflict` if another process has the folder open
 */
export async function openPglite({ folder }: PgliteOptions): Promise<Db> {
  const unlock = folder === undefined ? undefined : await lockFolder(folder);
  try {
    const lite = await createPglite(folder);
    return await openOn(lite, async () => {
      if (!lite.closed) await lite.close();
      await unlock?.();
    });
  } catch (error) {
    await unlock?.();
    throw error;
  }
}

export async function createPglite(folder?: string): Promise<PGlite> {
  const filled = folder !== undefined && existsSync(join(folder, "PG_VERSION"));
  return PGlite.create({
    ...(folder === undefined ? {} : { dataDir: folder }),
    // This takes a second of CPU time; PGlite's own initdb takes five.
    ...(filled ? {} : { loadDataDir: await preparedCluster() }),
    // The timer behind this setting would keep the process from ending.
    startParams: [...PGlite.defaultStartParams, "-c", "log_startup_progress_interval=0"],
    parsers: { [types.INT8]: Number },
  });
}

/** Nobody else may use the PGlite until `closed` is called. */
export async function openOn(lite: PGlite, closed: () => Promise<void>): Promise<Db> {
  await lite.exec(SETTINGS);
  const onSession = sessionOf(lite);
  const alone = pLimit(1);
  const vacuum = (): Promise<void> => alone(() => onSession.run("VACUUM")).catch(() => undefined);
  const vacuuming = setInterval(() => void vacuum(), VACUUM_EVERY_MS);
  vacuuming.unref();
  return {
    query: (sql, params) => retryConflicts(() => alone(() => onSession.query(sql, params))),
    run: (script) => retryConflicts(() => alone(() => onSession.run(script))),
    transaction: (work) => retryConflicts(() => alone(() => transact(onSession, work))),
    listen: async (channel, heard) => {
      await alone(() => lite.listen(channel, () => heard()));
    },
    close: async () => {
      clearInterval(vacuuming);
      await alone(closed);
    },
  };
}

/** Statements block this thread; sockets and timers get their turn here. */
const turnOfTheLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function sessionOf(lite: PGlite): Queries {
  const execute = createPrepared(lite);
  const open = (): void => {
    if (lite.closed) throw new AppError("unavailable", "the embedded database is closed");
  };
  return {
    query: async (sql, params = []) => {
      open();
      await turnOfTheLoop();
      return execute(sql, params);
    },
    run: async (script) => {
      open();
      await lite.exec(script);
    },
  };
}

async function transact<Result>(session: Queries, work: (queries: Queries) => Promise<Result>): Promise<Result> {
  // The work may run several statements at once.
  const oneByOne = pLimit(1);
  await session.run("BEGIN");
  try {
    const result = await work({
      query: (sql, params) => oneByOne(() => session.query(sql, params)),
      run: (script) => oneByOne(() => session.run(script)),
    });
    await session.run("COMMIT");
    return result;
  } catch (error) {
    await session.run("ROLLBACK");
    throw error;
  }
}

/** PGlite has no lock of its own, and two processes in one folder destroy it. Returns the unlocking function. */
export async function lockFolder(folder: string): Promise<() => Promise<void>> {
  await mkdir(dirname(folder), { recursive: true });
  const lock = await tryLockFile(`${folder}.lock`);
  if (lock.taken) return lock.release;
  throw new AppError(
    "conflict",
    `the data folder ${folder} is open in process ${lock.holder.pid}; name another one by TIMELINE_DATA_DIR, or set DATABASE_URL so that several processes can share a database`,
  );
}

const { serialize } = protocol;

/** PGlite's own query() plans each time, which takes longer than most statements. The caller runs one at a time. */
function createPrepared(lite: PGlite): Queries["query"] {
  const statements = new Map<string, { readonly name: string; readonly types: readonly number[] }>();
  const prepare = async (text: string) => {
    const name = `s${statements.size}`;
    const asked = [serialize.parse({ name, text }), serialize.describe({ type: "S", name }), serialize.sync()];
    const { messages } = await lite.execProtocol(Buffer.concat(asked));
    const statement = { name, types: parse.parseDescribeStatementResults(messages) };
    statements.set(text, statement);
    return statement;
  };
  return async <Row>(sql: string, params: readonly unknown[]) => {
    const { name, types } = statements.get(sql) ?? (await prepare(sql));
    const asked = [
      serialize.bind({ statement: name, values: params.map((value, index) => asText(lite, value, types[index])) }),
      serialize.describe({ type: "P" }),
      serialize.execute({}),
      serialize.sync(),
    ];
    const { messages } = await lite.execProtocol(Buffer.concat(asked));
    return (parse.parseResults(messages, lite.parsers)[0]?.rows ?? []) as Row[];
  };
}

function asText(lite: PGlite, value: unknown, type: number | undefined): string | null {
  if (value === null || value === undefined) return null;
  const serializer = type === undefined ? undefined : lite.serializers[type];
  return serializer ? serializer(value) : String(value as string | number | boolean);
}
