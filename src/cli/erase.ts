import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import {
  createErasureStatus,
  type ErasureShown,
  erasureAsJson,
  isLeft,
  lastMarked,
  liftErasure,
  placesAsText,
  removeMarkers,
  verifyErasure,
} from "../erasure/index.js";
import { printable } from "../kernel/errors.js";
import { silent } from "../kernel/logger.js";
import { VERSION } from "../kernel/version.js";
import { openPostgres } from "../platform/db/postgres.js";
import { dataFolder } from "../roles/database.js";
import { createBucket, createErasedList, createLift } from "../state/index.js";
import { connectUsers, isUnimplemented, type Users } from "../upstreams/upstreams.grpc.js";
import { type Opening, openLog, openRedisAlone, runJob, withConnections } from "./bootstrap.js";
import { exitWith, JSON_OPTION, parseUserId, wholeNumber } from "./options.js";
import { confirm, printList } from "./terminal.js";

interface Options {
  readonly json?: boolean;
  readonly yes?: boolean;
  readonly limit: number;
}

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 10_000;

export function define(erase: Command): void {
  erase
    .command("user")
    .description("erase a user for ever, with all that the user has written; on a terminal it asks first")
    .argument("<id>", "the user id", parseUserId)
    .option("--yes", "do not ask; needed where there is no terminal")
    .addOption(JSON_OPTION)
    .action(exitWith(eraseUser));
  erase
    .command("ls")
    .description("list the users who are being erased or are erased, the newest first")
    .option("--limit <count>", "maximum number of users", wholeNumber({ min: 1, max: MAX_LIMIT }), DEFAULT_LIMIT)
    .addOption(JSON_OPTION)
    .action(exitWith(list));
  erase
    .command("show")
    .description("show how far the erasure of one user is")
    .argument("<id>", "the user id", parseUserId)
    .addOption(JSON_OPTION)
    .action(exitWith(show));
  erase
    .command("verify")
    .description("look in PostgreSQL, Redis and NATS for places where a user is left; exits 1 if one may not be")
    .argument("<user>", "whose id is looked for", parseUserId)
    .addOption(JSON_OPTION)
    .action(exitWith(verify));
  erase
    .command("lift")
    .description("take a remote actor back that was deleted and erased; on a terminal it asks first")
    .argument("<uri>", "the URI of the actor", parseUserId)
    .requiredOption("--reason <text>", "why; `erase ls` and `erase show` have it", parseReason)
    .option("-f, --force", "do not ask")
    .addOption(JSON_OPTION)
    .action(exitWith(lift));
}

const MAX_REASON = 500;

function parseReason(text: string): string {
  const reason = text.trim();
  if (reason === "" || reason.length > MAX_REASON)
    throw new InvalidArgumentError(`must be a text of 1 to ${MAX_REASON} characters`);
  return reason;
}

const ERASE = { name: "erase", open: openErasures };

async function openErasures(opening: Opening) {
  const { nats, publish } = await openLog(opening);
  return createErasureStatus(createErasedList(createBucket(nats, publish, "ERASED")), openUsers(opening));
}

function openUsers({ config: { upstreams }, closers }: Opening): Users | undefined {
  const { userServiceAddr } = upstreams;
  if (userServiceAddr === undefined) return undefined;
  const users = connectUsers(userServiceAddr, upstreams);
  closers.add("users service", () => users.close());
  return users;
}

const openUsersAlone = async (opening: Opening): Promise<Users> => {
  const users = openUsers(opening);
  if (users === undefined) throw new Error("set TIMELINE_USER_SERVICE_ADDR: this command asks the users service");
  return users;
};

const CONSEQUENCE = "with profile, drops, reactions, follows, blocks, mutes, analyses and rewards; it cannot be undone";

/** Ends with exit code 1 if nothing was done. */
function eraseUser(id: string, { yes, json }: Options): Promise<number> {
  return withConnections({ name: "erase", open: openUsersAlone }, async (users) => {
    if (!yes && !(await mayErase(id))) return 1;
    const erasure = await users.erase(id).catch((error: unknown) => {
      if (!isUnimplemented(error)) throw error;
      throw new Error("the users service cannot erase users: it has to publish user_erased itself", { cause: error });
    });
    print(erasureAsJson(id, erasure), json);
    return 0;
  });
}

async function mayErase(id: string): Promise<boolean> {
  if (process.stdin.isTTY) {
    if (await confirm(`Erase the user ${printable(id)} for ever, ${CONSEQUENCE}?`)) return true;
    console.error("nothing was erased");
  } else console.error(`the user ${printable(id)} would be erased, ${CONSEQUENCE}: add --yes`);
  return false;
}

function list({ json, limit }: Options): Promise<number> {
  return withConnections(ERASE, async (erasures) => {
    const erased = await erasures.list(limit);
    return printList(erased, { json, none: "nobody is erased", asLine });
  });
}

/** Ends with exit code 1 if the user is not erased. */
function show(id: string, { json }: Options): Promise<number> {
  return withConnections(ERASE, async (erasures) => {
    const erasure = await erasures.show(id);
    if (erasure.status === "none") {
      console.error(`the user ${printable(id)} is not erased`);
      return 1;
    }
    print(erasure, json);
    return erasure.status === "lifted" ? 1 : 0;
  });
}

function asLine({ user_id, status, requested_at, completed_at, steps, lifted_at, reason }: ErasureShown): string {
  if (lifted_at !== undefined) return printable(`${status} at ${lifted_at}  ${user_id}  ${reason}`);
  const since = completed_at ?? requested_at;
  const open = steps.filter(({ done }) => !done).map(({ name }) => name);
  const waiting = open.length === 0 ? "" : `  not done: ${open.join(", ")}`;
  return printable(`${status}${since === null ? "" : ` since ${since}`}  ${user_id}${waiting}`);
}

function print(shown: ErasureShown, json: boolean | undefined): void {
  if (json) return console.log(JSON.stringify(shown));
  console.log(asLine({ ...shown, steps: [] }));
  for (const { name, done, left: remaining } of shown.steps)
    console.log(`  ${name}: ${done ? "done" : remaining > 0 ? `${remaining} left` : "not done"}`);
}

/** Changes nothing. The database is that of DATABASE_URL; without it no table is read. */
function verify(user: string, { json }: { readonly json?: boolean }): Promise<number> {
  return runJob({ name: "erase", open: openAll, json }, async ({ connections, stopping, say }) => {
    const places = await verifyErasure(connections, user, (text) => {
      if (stopping.aborted) throw new Error("stopped before the end");
      say(() => text);
    });
    const noTables = connections.db ? "" : "\nDATABASE_URL is not set: no table was read";
    const answer = { user_id: user, left: isLeft(places), tables: connections.db !== undefined, places };
    return { json: answer, text: placesAsText(user, places) + noTables, failed: answer.left };
  });
}

async function openAll(opening: Opening) {
  const { config, closers } = opening;
  const { url } = config.database;
  const db =
    url === undefined ? undefined : openPostgres({ url, poolSize: 1, name: `avion-timeline/${VERSION} erase` }, silent);
  if (db) closers.add("database", () => db.close());
  const { nats, publish } = await openLog(opening);
  const { scripts } = await openRedisAlone(opening);
  return { db, nats, publish, scripts };
}

interface LiftOptions {
  readonly reason: string;
  readonly force?: boolean;
  readonly json?: boolean;
}

/** Ends with exit code 1 if nothing was done. The database is that of DATABASE_URL, or the embedded one. */
function lift(uri: string, { reason, force, json }: LiftOptions): Promise<number> {
  return withConnections({ name: "erase", open: openToLift }, async ({ db, nats, publish, scripts }) => {
    if (!force && !(await confirm(`Take the remote actor ${printable(uri)} back?`))) {
      console.error("nothing was lifted");
      return 1;
    }
    const bucket = createBucket(nats, publish, "ERASED");
    const tables = db && {
      lastMarked: (actor: string) => lastMarked(db, actor),
      removeMarkers: (actor: string) => removeMarkers(db, actor),
    };
    const deps = { list: createErasedList(bucket), record: createLift(scripts, bucket) };
    const actor = await liftErasure(tables ? { ...deps, tables } : deps, uri, reason);
    if (json) console.log(JSON.stringify({ user_id: actor, status: "lifted", reason, tables: db !== undefined }));
    else {
      console.log(printable(`the erasure of ${actor} is lifted: ${reason}`));
      if (db === undefined) console.log("DATABASE_URL is not set: a table may refuse the actor still");
    }
    return 0;
  });
}

async function openToLift(opening: Opening) {
  const opened = await openAll(opening);
  const folder = dataFolder(opening.config.database);
  if (opened.db !== undefined || !existsSync(join(folder, "PG_VERSION"))) return opened;
  const { openPglite } = await import("../platform/db/pglite.js");
  const db = await openPglite({ folder });
  opening.closers.add("embedded database", () => db.close());
  return { ...opened, db };
}
