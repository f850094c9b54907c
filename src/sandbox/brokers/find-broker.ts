import { access, constants, lstat, mkdir, mkdtemp, readdir, rename, rm, stat } from "node:fs/promises";
import { homedir, tmpdir, userInfo } from "node:os";
import { delimiter, isAbsolute, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { oneLine } from "../../kernel/errors.js";
import { tryLockFile } from "../../kernel/lock-file.js";
import { runCommand } from "../../kernel/processes.js";
import { MINUTE } from "../../kernel/time.js";
import { type BrokerName, fetchFromDebian, type OnProgress } from "./debian.js";

export interface BrokerBinary {
  readonly command: string;
  /** Added to the server's environment: LD_LIBRARY_PATH for a server with libraries of its own. */
  readonly env: Record<string, string>;
  readonly version: string;
  readonly origin: "path" | "cache" | "debian";
}

interface FindOptions {
  readonly onProgress?: OnProgress | undefined;
  /** Holds PATH, HOME, XDG_CACHE_HOME and the two overrides; the process's own by default. */
  readonly env?: NodeJS.ProcessEnv;
}

const PROGRAMS: Record<BrokerName, readonly string[]> = {
  redis: ["redis-server", "valkey-server"],
  nats: ["nats-server"],
};
const OVERRIDES: Record<BrokerName, string> = { redis: "AVION_REDIS_SERVER", nats: "AVION_NATS_SERVER" };
// Servers are often installed in these folders, which the PATH of ordinary users leaves out.
const SYSTEM_FOLDERS = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
const BINARY_FOLDERS = ["usr/bin", "usr/sbin", "bin", "sbin"];

/**
 * Finds a server to run: the named binary, then PATH, then our cache, then the machine's Debian packages.
 *
 * @throws an error that says what to install if none of these has one
 */
export async function findBroker(name: BrokerName, { env = process.env, onProgress }: FindOptions = {}) {
  const named = env[OVERRIDES[name]];
  if (named) {
    const binary = await usable(named, "path");
    if (binary === undefined) throw new Error(`${named} is not a ${name}-server that runs here`);
    return binary;
  }
  const installed = await usable(await onPath(PROGRAMS[name], env), "path");
  if (installed !== undefined) return installed;
  const cache = await cacheFolder(env);
  const folder = join(cache, name);
  const cached = await unpackedIn(name, folder, "cache");
  if (cached !== undefined) return cached;
  for (const tool of ["apt-get", "dpkg-deb"]) {
    if ((await onPath([tool], env)) === undefined) throw missingBroker(name, `there is no ${tool} on this machine`);
  }
  const onWait = (): void => onProgress?.(`${name}: another process is fetching it, waiting`);
  return underLock(`${folder}.lock`, onWait, async () => {
    // Another process may have fetched it before this one got the lock.
    const theirs = await unpackedIn(name, folder, "cache");
    if (theirs !== undefined) return theirs;
    await fetchInto(folder, name, { env, onProgress });
    const fetched = await unpackedIn(name, folder, "debian");
    if (fetched === undefined) throw missingBroker(name, "the fetched server does not run here");
    return fetched;
  });
}

/** The caller holds the lock of `folder`, which a fetch that is killed leaves as it was. */
async function fetchInto(folder: string, name: BrokerName, { env, onProgress }: FindOptions): Promise<void> {
  const beside = `${folder}.new`;
  await rm(beside, { recursive: true, force: true });
  try {
    await fetchFromDebian(name, beside, env ?? {}, onProgress);
    await rm(folder, { recursive: true, force: true });
    await rename(join(beside, "root"), folder);
  } catch (error) {
    throw missingBroker(name, oneLine(error));
  } finally {
    await rm(beside, { recursive: true, force: true });
  }
}

async function unpackedIn(
  name: BrokerName,
  root: string,
  origin: BrokerBinary["origin"],
): Promise<BrokerBinary | undefined> {
  const folders = BINARY_FOLDERS.map((folder) => join(root, folder));
  const libraries = await libraryFolders(root);
  const path = [...libraries, process.env["LD_LIBRARY_PATH"] ?? ""].filter((folder) => folder !== "").join(":");
  const env: Record<string, string> = libraries.length === 0 ? {} : { LD_LIBRARY_PATH: path };
  return usable(await firstExecutable(folders, PROGRAMS[name]), origin, env);
}

/** Debian keeps libraries in one folder per machine type, such as x86_64-linux-gnu. */
async function libraryFolders(root: string): Promise<string[]> {
  const folders: string[] = [];
  for (const base of ["usr/lib", "lib"]) {
    const names = await readdir(join(root, base)).catch(() => []);
    folders.push(...names.filter((name) => name.includes("-linux-")).map((name) => join(root, base, name)));
  }
  return folders;
}

/** Finds the first program that is installed, also in folders that only the PATH of root has. */
export async function onPath(programs: readonly string[], env: NodeJS.ProcessEnv): Promise<string | undefined> {
  const path = env["PATH"] ?? "";
  if (path === "") return undefined;
  return firstExecutable([...path.split(delimiter).filter((folder) => folder !== ""), ...SYSTEM_FOLDERS], programs);
}

async function firstExecutable(folders: readonly string[], programs: readonly string[]): Promise<string | undefined> {
  for (const candidate of programs.flatMap((program) => folders.map((folder) => join(folder, program)))) {
    const executable = access(candidate, constants.X_OK).then(async () => (await stat(candidate)).isFile());
    if (await executable.catch(() => false)) return candidate;
  }
  return undefined;
}

/** Resolves to undefined if the command does not run here. */
async function usable(
  command: string | undefined,
  origin: BrokerBinary["origin"],
  env: Record<string, string> = {},
): Promise<BrokerBinary | undefined> {
  if (command === undefined) return undefined;
  const { code, output } = await runCommand(command, ["--version"], { env: { ...process.env, ...env } });
  const version = code === 0 ? /\bv?=?(\d+\.\d+\.\d+)/.exec(output)?.[1] : undefined;
  return version === undefined ? undefined : { command, env, version, origin };
}

const INSTALLATION: Record<BrokerName, readonly string[]> = {
  redis: [
    "On Debian or Ubuntu, run: sudo apt-get install redis-server",
    "On Fedora or RHEL, run: sudo dnf install valkey (redis on older releases)",
    "On Arch, run: sudo pacman -S valkey",
    "On Alpine, run: sudo apk add redis",
    "On macOS with Homebrew, run: brew install redis",
  ],
  nats: [
    "On Debian or Ubuntu, run: sudo apt-get install nats-server",
    "On Fedora or RHEL, run: sudo dnf install golang && go install github.com/nats-io/nats-server/v2@latest",
    "On Arch, run: sudo pacman -S nats-server",
    "On Alpine, run: sudo apk add nats-server",
    "On macOS with Homebrew, run: brew install nats-server",
  ],
};

function missingBroker(name: BrokerName, reason: string): Error {
  const lines = INSTALLATION[name].map((sentence) => `  ${sentence}`).join("\n");
  const head = `${name}-server was not found and could not be fetched: ${reason}`;
  return new Error(`${head}\nInstall it, or name a binary in ${OVERRIDES[name]}.\n${lines}`);
}

/**
 * Finds the folder for fetched servers: under the user's cache folder, or under the temporary folder if that
 * cannot be written.
 */
async function cacheFolder(env: NodeJS.ProcessEnv): Promise<string> {
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
  const stats = await lstat(folder).catch(() => undefined);
  const ours = stats?.isDirectory() === true && stats.uid === uid && (stats.mode & 0o022) === 0;
  return ours ? folder : mkdtemp(`${folder}-`);
}

const POLL_MS = 100;
const WAIT_LIMIT_MS = 10 * MINUTE;

/** Runs `work` under a lock file. */
async function underLock<T>(path: string, onWait: () => void, work: () => Promise<T>): Promise<T> {
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
