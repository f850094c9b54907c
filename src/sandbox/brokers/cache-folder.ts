import { access, constants, lstat, mkdir, mkdtemp } from "node:fs/promises";
import { homedir, tmpdir, userInfo } from "node:os";
import { isAbsolute, join } from "node:path";

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
  // The XDG specification says that relative paths are to be ignored.
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

// Anybody can make a folder of this name first, and we run what lies in it: so it must be ours alone.
async function temporaryFolder(): Promise<string> {
  const { uid } = userInfo();
  const folder = join(tmpdir(), `avion-timeline-brokers-${uid}`);
  await mkdir(folder, { mode: 0o700 }).catch(() => undefined);
  const found = await lstat(folder).catch(() => undefined);
  const ours = found?.isDirectory() === true && found.uid === uid && (found.mode & 0o022) === 0;
  return ours ? folder : mkdtemp(`${folder}-`);
}
