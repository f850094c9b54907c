import { randomBytes } from "node:crypto";
import { link, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { identify, isAlive, type ProcessIdentity } from "../../kernel/process-identity.js";
import { endServer } from "./guarded.js";

/*
 * A data folder has one parent process at a time. `broker.pid` names it: first the parent alone (claimed), then the
 * server too (running). Both are known by pid and start time: a pid that another process has got since is never waited
 * for and never killed. Zero and negative pids would address process groups.
 */
const identity = z.object({ pid: z.int().positive(), startTime: z.string() });
const claimFile = z.object({ parent: identity, server: identity.nullable() });
type Claim = z.output<typeof claimFile>;

const fileIn = (dir: string): string => join(dir, "broker.pid");

/**
 * Ends a server that a dead parent left over in `dir`.
 *
 * @throws "data folder in use by pid N" while the parent lives
 */
export async function clearStale(dir: string): Promise<void> {
  const claim = await readClaim(dir);
  if (claim === undefined) return;
  const { parent, server } = claim;
  const left = server !== null && (await isAlive(server)) ? server : undefined;
  if ((left || server === null) && (await isAlive(parent))) throw inUse(dir, parent.pid);
  if (left && !(await endServer(left))) throw new Error(`the server left over as pid ${left.pid} does not end`);
  await rm(fileIn(dir), { force: true });
}

/** @throws if another process claimed it first */
export async function claimFolder(dir: string): Promise<void> {
  await clearStale(dir);
  const draft = await writeDraft(dir, null);
  try {
    // A link appears with its whole content or not at all, and fails where the name exists.
    await link(draft, fileIn(dir));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    throw inUse(dir, (await readClaim(dir))?.parent.pid ?? 0);
  } finally {
    await rm(draft, { force: true });
  }
}

/** Adds the started server to a folder that this process has claimed. */
export async function recordServer(dir: string, server: ProcessIdentity): Promise<void> {
  await rename(await writeDraft(dir, server), fileIn(dir));
}

/** Releases the folder, unless it has another parent or another server than `serverPid` by now. */
export async function releaseFolder(dir: string, serverPid?: number): Promise<void> {
  const claim = await readClaim(dir);
  if (claim?.parent.pid !== process.pid) return;
  if (serverPid === undefined || claim.server?.pid === serverPid) await rm(fileIn(dir), { force: true });
}

async function writeDraft(dir: string, server: ProcessIdentity | null): Promise<string> {
  const parent = (await identify(process.pid)) ?? { pid: process.pid, startTime: "unknown" };
  const draft = `${fileIn(dir)}.${process.pid}.${randomBytes(4).toString("hex")}`;
  await writeFile(draft, `${JSON.stringify({ parent, server } satisfies Claim)}\n`);
  return draft;
}

async function readClaim(dir: string): Promise<Claim | undefined> {
  const text = await readFile(fileIn(dir), "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  if (text === undefined) return undefined;
  try {
    return claimFile.parse(JSON.parse(text));
  } catch {
    throw new Error(`${fileIn(dir)} is not readable as a broker file; remove it when no server runs`);
  }
}

const inUse = (dir: string, pid: number): Error => new Error(`data folder in use by pid ${pid}: ${dir}`);
