import { randomBytes } from "node:crypto";
import { link, readFile, rename, rm, writeFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { identify, isAlive, type ProcessIdentity } from "./process-identity.js";

const POLL_MS = 100;
const WAIT_LIMIT_MS = 10 * 60_000;

/**
 * Runs `work` while no other process (and no other caller here) runs it under the same lock file.
 * A lock left by a dead process is taken over. The lock only saves double work: what it guards must itself be atomic.
 */
export async function underLock<T>(path: string, onWait: () => void, work: () => Promise<T>): Promise<T> {
  const owner = JSON.stringify({ ...(await identify(process.pid)), nonce: randomBytes(8).toString("hex") });
  await acquire(path, owner, onWait);
  try {
    return await work();
  } finally {
    if ((await read(path)) === owner) await rm(path, { force: true });
  }
}

async function acquire(path: string, owner: string, onWait: () => void): Promise<void> {
  const deadline = Date.now() + WAIT_LIMIT_MS;
  let told = false;
  while (!(await tryTake(path, owner))) {
    const holder = await read(path);
    if (holder !== undefined && !(await holderAlive(holder))) {
      await setAside(path, holder);
      continue;
    }
    if (Date.now() > deadline) throw new Error(`${path} is held by another process for too long`);
    if (!told) onWait();
    told = true;
    await delay(POLL_MS);
  }
}

async function tryTake(path: string, owner: string): Promise<boolean> {
  const temporary = `${path}.${randomBytes(6).toString("hex")}`;
  await writeFile(temporary, owner, { flag: "wx" });
  try {
    // A link appears with its full content or not at all, and fails where the name exists.
    await link(temporary, path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    await rm(temporary, { force: true });
  }
}

// Two waiters may find the same dead holder; the slower one must not remove the lock of the quicker one.
async function setAside(path: string, deadHolder: string): Promise<void> {
  const aside = `${path}.${randomBytes(6).toString("hex")}`;
  try {
    await rename(path, aside);
  } catch {
    return;
  }
  if ((await read(aside)) !== deadHolder) await link(aside, path).catch(() => undefined);
  await rm(aside, { force: true });
}

async function holderAlive(holder: string): Promise<boolean> {
  try {
    return await isAlive(JSON.parse(holder) as ProcessIdentity);
  } catch {
    return false;
  }
}

async function read(path: string): Promise<string | undefined> {
  return readFile(path, "utf8").catch(() => undefined);
}
