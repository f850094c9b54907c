import { setTimeout as delay } from "node:timers/promises";
import { tryLockFile } from "../../kernel/lock-file.js";

const POLL_MS = 100;
const WAIT_LIMIT_MS = 10 * 60_000;

/**
 * Runs `work` while no other process (and no other caller here) runs it under the same lock file.
 * The lock only saves double work: what it guards must itself be atomic.
 */
export async function underLock<T>(path: string, onWait: () => void, work: () => Promise<T>): Promise<T> {
  const release = await acquire(path, onWait);
  try {
    return await work();
  } finally {
    await release();
  }
}

async function acquire(path: string, onWait: () => void): Promise<() => Promise<void>> {
  const deadline = Date.now() + WAIT_LIMIT_MS;
  for (let tries = 1; ; tries++) {
    const lock = await tryLockFile(path);
    if (lock.taken) return lock.release;
    if (Date.now() > deadline) throw new Error(`${path} is held by another process for too long`);
    if (tries === 1) onWait();
    await delay(POLL_MS);
  }
}
