import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { tryLockFile } from "../../kernel/lock-file.js";
import { isAlive, type ProcessIdentity } from "../../kernel/processes.js";
import { endServer } from "./guarded.js";

// Zero and negative pids would address process groups.
const identity = z.object({ pid: z.int().positive(), startTime: z.string() });

const fileIn = (dir: string): string => join(dir, "broker.pid");

/**
 * Locks a data folder for this process, and ends a server that a dead parent left over there.
 *
 * @throws "data folder in use by pid N" while another parent lives
 * @returns the function that releases the folder, for after the server's end
 */
export async function claimFolder(dir: string): Promise<() => Promise<void>> {
  await mkdir(dir, { recursive: true });
  const lock = await tryLockFile(join(dir, "broker.lock"));
  if (!lock.taken) throw new Error(`data folder in use by pid ${lock.holder.pid}: ${dir}`);
  try {
    const left = await readServer(dir);
    if (left && (await isAlive(left)) && !(await endServer(left)))
      throw new Error(`the server left over as pid ${left.pid} does not end`);
    await rm(fileIn(dir), { force: true });
  } catch (error) {
    await lock.release();
    throw error;
  }
  return async () => {
    await rm(fileIn(dir), { force: true });
    await lock.release();
  };
}

/** Ends a server that a dead parent left over in `dir`. @throws as claimFolder */
export const clearStale = async (dir: string): Promise<void> => (await claimFolder(dir))();

/** Names the started server of a claimed folder. */
export async function recordServer(dir: string, { pid, startTime }: ProcessIdentity): Promise<void> {
  const draft = `${fileIn(dir)}.${process.pid}`;
  await writeFile(draft, `${JSON.stringify({ pid, startTime })}\n`);
  await rename(draft, fileIn(dir));
}

async function readServer(dir: string): Promise<ProcessIdentity | undefined> {
  const text = await readFile(fileIn(dir), "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  if (text === undefined) return undefined;
  try {
    return identity.parse(JSON.parse(text));
  } catch {
    throw new Error(`${fileIn(dir)} is not readable as a broker file; remove it when no server runs`);
  }
}
