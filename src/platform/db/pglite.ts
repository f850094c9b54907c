import { PGlite, types } from "@electric-sql/pglite";
import pLimit from "p-limit";
import { AppError } from "../../kernel/errors.js";
import { MINUTE } from "../../kernel/time.js";
import { attempted } from "./attempts.js";
import { lockFolder } from "./data-folder.js";
import type { Db, Queries } from "./db.js";
import { createPrepared } from "./prepared.js";

/** Where embedded PGlite keeps its data. */
export interface PgliteOptions {
  /** Unset: in memory, gone at the end. */
  readonly folder?: string;
  /** A dump of a data folder to begin with; only in memory. */
  readonly dump?: Blob;
}

/**
 * Nothing analyzes tables here, and plans are kept: one that was made for a few rows would scan very many later. Every
 * statement of ours has its index.
 */
const SETTINGS = "SET enable_seqscan = off";

/** No autovacuum runs here either; what changes all the time, as an outbox does, would grow without end. */
const VACUUM_EVERY_MS = MINUTE;

/**
 * Opens PostgreSQL in this process. One connection: statements and transactions run one after another. It writes
 * without fsync, so that what was committed survives the process, and not the machine.
 *
 * @throws AppError `conflict` where another process has the folder open
 */
export async function openPglite({ folder, dump }: PgliteOptions): Promise<Db> {
  const unlock = folder === undefined ? undefined : await lockFolder(folder);
  try {
    const lite = await PGlite.create({
      ...(folder === undefined ? {} : { dataDir: folder }),
      ...(dump ? { loadDataDir: dump } : {}),
      parsers: { [types.INT8]: Number },
    });
    await lite.exec(SETTINGS);
    return dbOn(lite, unlock);
  } catch (error) {
    await unlock?.();
    throw error;
  }
}

function dbOn(lite: PGlite, unlock: (() => Promise<void>) | undefined): Db {
  const onSession = sessionOf(lite);
  // Whoever is in a transaction has the session to itself.
  const alone = pLimit(1);
  const vacuum = (): Promise<void> => alone(() => onSession.run("VACUUM")).catch(() => undefined);
  const vacuuming = setInterval(() => void vacuum(), VACUUM_EVERY_MS);
  vacuuming.unref();
  return {
    query: (sql, params) => attempted(() => alone(() => onSession.query(sql, params))),
    run: (script) => attempted(() => alone(() => onSession.run(script))),
    transaction: (work) => attempted(() => alone(() => transact(onSession, work))),
    listen: async (channel, heard) => {
      await alone(() => lite.listen(channel, () => heard()));
    },
    close: async () => {
      clearInterval(vacuuming);
      await alone(async () => {
        if (!lite.closed) await lite.close();
      });
      await unlock?.();
    },
  };
}

/**
 * A statement is computed in this thread, without ever waiting: one after the other would never let anybody else have
 * a turn, sockets and timers included.
 */
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
  // The work may ask several things at once; the session answers one after another.
  const inTurn = pLimit(1);
  await session.run("BEGIN");
  try {
    const result = await work({
      query: (sql, params) => inTurn(() => session.query(sql, params)),
      run: (script) => inTurn(() => session.run(script)),
    });
    await session.run("COMMIT");
    return result;
  } catch (error) {
    await session.run("ROLLBACK");
    throw error;
  }
}
