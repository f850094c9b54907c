import { access, constants, lstat, mkdir, mkdtemp } from "node:fs/promises";
import { homedir, tmpdir, userInfo } from "node:os";
import { isAbsolute, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { tryLockFile } from "../../kernel/lock-file.js";

/**
 * The folder that keeps fetched servers: under the user's cache folder, or under the temporary folder where that
 * cannot be written.
 */
export async function cacheFolder(env: NodeJS.ProcessEnv): Promise<string> {
  const preferred = join(userCache(env), "avion-timeline", "brokers");
  return (await isWritable(preferred)) ? preferred : temporaryFolder();
}

function userCache(env: NodeJS.ProcessEnv): string {
  const named = env["XDG_CACHE_HOME"];
  // The XDG specification has relative paths ignored.
  if (named !== undefined && isAbsolute(named)) return named;
  return join(env["HOME"] || homedir(), ".cache");
}

async function isWritable(folder: string): Promise<boolean> {
  try {
    await mkdir(folder, { recursive: true });
    await access(folder, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Another user could make a folder of this name first, and programs are run from it: it must be ours alone. */
async function temporaryFolder(): Promise<string> {
  const { uid } = userInfo();
  const folder = join(tmpdir(), `avion-timeline-brokers-${uid}`);
  await mkdir(folder, { mode: 0o700 }).catch(() => undefined);
  const found = await lstat(folder).catch(() => undefined);
  const ours = found?.isDirectory() === true && found.uid === uid && (found.mode & 0o022) === 0;
  return ours ? folder : mkdtemp(`${folder}-`);
}

const POLL_MS = 100;
const WAIT_LIMIT_MS = 10 * 60_000;

/** Runs `work` under a lock file. The lock only saves double work: the work must be atomic by itself. */
export async function underLock<T>(path: string, onWait: () => void, work: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + WAIT_LIMIT_MS;
  for (let tries = 1; ; tries++) {
    const lock = await tryLockFile(path);
    if (lock.taken) {
      try {
        return await work();
      } finally {
        await lock.release();
      }
    }
    if (Date.now() > deadline) throw new Error(`${path} is held by another process for too long`);
    if (tries === 1) onWait();
    await delay(POLL_MS);
  }
}
