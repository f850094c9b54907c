import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Command, InvalidArgumentError, Option } from "commander";
import { ERASURES, type ErasureShown } from "../contracts/tables.js";
import {
  createErasureStatus,
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
import { openErasedList } from "../state/index.js";
import { connectUsers, isUnimplemented, type Users } from "../upstreams/upstreams.grpc.js";
import { type Answer, type Opening, openLog, openState, runJob } from "./bootstrap.js";
import { exitWith, JSON_OPTION, parseUserId } from "./options.js";
import { defineList, defineOne } from "./records.js";
import { confirm } from "./terminal.js";

const ERASE = { name: "erase", open: openErasures };
const USERS = { name: "erase", open: openUsersAlone };
const LIFT = { name: "erase", open: openToLift };

export function define(erase: Command): void {
  const id = ["<id>", "the user id", parseUserId] as const;
  defineOne(erase, USERS, {
    name: "user",
    about: "erase a user for ever, with all that the user has written; on a terminal it asks first",
    argument: id,
    answer: eraseUser,
  }).option("--yes", "do not ask; needed where there is no terminal");
  defineList(erase, ERASE, {
    about: "list the users who are being erased or are erased, the newest first",
    limited: "users",
    table: ERASURES,
    read: (erasures, { limit }) => erasures.list(limit),
  });
  defineOne(erase, ERASE, {
    name: "show",
    about: "show how far the erasure of one user is",
    argument: id,
    answer: show,
  });
  erase
    .command("verify")
    .description("look in PostgreSQL, Redis and NATS for places where a user is left; exits 1 if one may not be")
    .argument("<user>", "whose id is looked for", parseUserId)
    .addOption(JSON_OPTION)
    .action(exitWith(verify));
  defineOne(erase, LIFT, {
    name: "lift",
    about: "take a remote actor back that was deleted and erased; on a terminal it asks first",
    argument: ["<uri>", "the URI of the actor", parseUserId],
    answer: lift,
  })
    .requiredOption("--reason <text>", "why; `erase ls` and `erase show` have it", parseReason)
    .option("--yes", "do not ask")
    // Its name until 0.4.
    .addOption(new Option("-f, --force").hideHelp());
}

const MAX_REASON = 500;

function parseReason(text: string): string {
  const reason = text.trim();
  if (reason === "" || reason.length > MAX_REASON)
    throw new InvalidArgumentError(`must be a text of 1 to ${MAX_REASON} characters`);
  return reason;
}

async function openErasures(opening: Opening) {
  return createErasureStatus(openErasedList(await openLog(opening)), openUsers(opening));
}

function openUsers({ config: { upstreams }, closers }: Opening): Users | undefined {
  const { userServiceAddr } = upstreams;
  if (userServiceAddr === undefined) return undefined;
  const users = connectUsers(userServiceAddr, upstreams.tls);
  closers.add("users service", () => users.close());
  return users;
}

export async function openUsersAlone(opening: Opening): Promise<Users> {
  const users = openUsers(opening);
  if (users === undefined) throw new Error("set TIMELINE_USER_SERVICE_ADDR: this command asks the users service");
  return users;
}

const CONSEQUENCE =
  "with profile, drops, reactions, follows, blocks, mutes, analyses, rewards and notifications; it cannot be undone";

async function eraseUser(users: Users, id: string, { yes }: { readonly yes?: boolean }): Promise<Answer | undefined> {
  if (!yes && !(await mayErase(id))) return undefined;
  const erasure = await users.erase(id).catch((error: unknown) => {
    if (!isUnimplemented(error)) throw error;
    throw new Error("the users service cannot erase users: it has to publish user_erased itself", { cause: error });
  });
  return answerOf(erasureAsJson(id, erasure));
}

async function mayErase(id: string): Promise<boolean> {
  if (process.stdin.isTTY) {
    if (await confirm(`Erase the user ${printable(id)} for ever, ${CONSEQUENCE}?`)) return true;
    console.error("nothing was erased");
  } else console.error(`the user ${printable(id)} would be erased, ${CONSEQUENCE}: add --yes`);
  return false;
}

/** The command ends with exit code 1 if the user is not erased. */
async function show(erasures: ReturnType<typeof createErasureStatus>, id: string): Promise<Answer | undefined> {
  const erasure = await erasures.show(id);
  if (erasure.status !== "none") return { ...answerOf(erasure), failed: erasure.status === "lifted" };
  console.error(`the user ${printable(id)} is not erased`);
  return undefined;
}

function answerOf(json: ErasureShown): Answer {
  const steps = json.steps.map(
    ({ name, done, left: remaining }) =>
      `  ${name}: ${done ? "done" : remaining > 0 ? `${remaining} left` : "not done"}`,
  );
  return { json, text: [ERASURES.line({ ...json, steps: [] }), ...steps].join("\n") };
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
  return { ...(await openState(opening)), db };
}

/** The database is that of DATABASE_URL, or the embedded one. */
async function lift(
  { db, state }: Awaited<ReturnType<typeof openToLift>>,
  uri: string,
  { reason, yes, force = yes }: { readonly reason: string; readonly yes?: boolean; readonly force?: boolean },
): Promise<Answer | undefined> {
  if (!force && !(await confirm(`Take the remote actor ${printable(uri)} back?`))) {
    console.error("nothing was lifted");
    return undefined;
  }
  const tables = db && {
    lastMarked: (actor: string) => lastMarked(db, actor),
    removeMarkers: (actor: string) => removeMarkers(db, actor),
  };
  const deps = { list: state.erasedList, record: state.lift };
  const actor = await liftErasure(tables ? { ...deps, tables } : deps, uri, reason);
  const noTables = db === undefined ? "\nDATABASE_URL is not set: a table may refuse the actor still" : "";
  return {
    json: { user_id: actor, status: "lifted", reason, tables: db !== undefined },
    text: printable(`the erasure of ${actor} is lifted: ${reason}`) + noTables,
  };
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
