import { randomBytes } from "node:crypto";
import { link, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  identify,
  isAlive,
  type ProcessIdentity,
  signalProcess,
  waitUntilGone,
} from "../../kernel/process-identity.js";

/*
 * A data folder belongs to one parent at a time. `broker.pid` says which: first it names the parent alone (claimed),
 * then also the server (running). Parent and server are both known by pid and start time, so a pid that was given to
 * somebody else meanwhile is never waited for and never killed.
 */

type Claim = { readonly parent: ProcessIdentity; readonly server: ProcessIdentity | null };

const STOP_GRACE_MS = 5_000;
const fileIn = (dir: string): string => join(dir, "broker.pid");

/**
 * Ends a server left over in `dir` by a parent that died.
 * Throws "data folder in use by pid N" when the parent is alive.
 */
export async function clearStale(dir: string): Promise<void> {
  const claim = await readClaim(dir);
  if (claim === undefined) return;
  const serverAlive = claim.server !== null && (await isAlive(claim.server));
  const starting = claim.server === null;
  if ((serverAlive || starting) && (await isAlive(claim.parent))) throw inUse(dir, claim.parent.pid);
  if (serverAlive && claim.server !== null) await endServer(claim.server);
  await rm(fileIn(dir), { force: true });
}

/** Takes the folder for this process; throws when another start was quicker. */
export async function claimFolder(dir: string): Promise<void> {
  await clearStale(dir);
  const parent = await self();
  const temporary = await writeBeside(dir, { parent, server: null });
  try {
    // A link appears with its full content or not at all, and fails where the name exists.
    await link(temporary, fileIn(dir));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    const winner = await readClaim(dir);
    throw inUse(dir, winner?.parent.pid ?? 0);
  } finally {
    await rm(temporary, { force: true });
  }
}

/** Adds the started server to a folder that this process has claimed. */
export async function recordServer(dir: string, server: ProcessIdentity): Promise<void> {
  const temporary = await writeBeside(dir, { parent: await self(), server });
  await rename(temporary, fileIn(dir));
}

/** Gives the folder back; nothing happens when somebody else owns it by now. */
export async function releaseFolder(dir: string, serverPid?: number): Promise<void> {
  const claim = await readClaim(dir);
  if (claim === undefined || claim.parent.pid !== process.pid) return;
  if (serverPid !== undefined && claim.server?.pid !== serverPid) return;
  await rm(fileIn(dir), { force: true });
}

async function endServer(server: ProcessIdentity): Promise<void> {
  signalProcess(server.pid, "SIGTERM");
  // A server stopped by SIGSTOP would never see the SIGTERM.
  signalProcess(server.pid, "SIGCONT");
  if (await waitUntilGone(server, STOP_GRACE_MS)) return;
  signalProcess(server.pid, "SIGKILL");
  if (!(await waitUntilGone(server, STOP_GRACE_MS))) {
    throw new Error(`the server left over as pid ${server.pid} does not end`);
  }
}

async function self(): Promise<ProcessIdentity> {
  return (await identify(process.pid)) ?? { pid: process.pid, startTime: "unknown" };
}

async function writeBeside(dir: string, claim: Claim): Promise<string> {
  const temporary = `${fileIn(dir)}.${process.pid}.${randomBytes(4).toString("hex")}`;
  await writeFile(temporary, `${JSON.stringify(claim)}\n`);
  return temporary;
}

async function readClaim(dir: string): Promise<Claim | undefined> {
  let text: string;
  try {
    text = await readFile(fileIn(dir), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  const claim = parseJson(text);
  if (!isClaim(claim))
    throw new Error(`${fileIn(dir)} is not readable as a broker file; remove it when no server runs`);
  return claim;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isClaim(value: unknown): value is Claim {
  const claim = value as Partial<Claim> | null | undefined;
  return isIdentity(claim?.parent) && (claim?.server === null || isIdentity(claim?.server));
}

function isIdentity(value: unknown): value is ProcessIdentity {
  const identity = value as Partial<ProcessIdentity> | null | undefined;
  const pid = identity?.pid;
  // Zero and negative numbers would address process groups.
  return typeof pid === "number" && Number.isInteger(pid) && pid > 0 && typeof identity?.startTime === "string";
}

function inUse(dir: string, pid: number): Error {
  return new Error(`data folder in use by pid ${pid}: ${dir}`);
}
