import { access, constants, mkdtemp, readdir, rename, rm, stat } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { runCommand } from "../../kernel/processes.js";
import { cacheFolder, underLock } from "./cache.js";
import { type BrokerName, fetchFromDebian, type OnProgress } from "./debian.js";

export interface BrokerBinary {
  readonly command: string;
  /** These are added to the server's environment: LD_LIBRARY_PATH for a server with libraries of its own. */
  readonly env: Record<string, string>;
  readonly version: string;
  readonly origin: "path" | "cache" | "debian";
}

interface FindOptions {
  readonly onProgress?: OnProgress | undefined;
  /** Wins over TIMELINE_REDIS_SERVER and TIMELINE_NATS_SERVER. */
  readonly binary?: string | undefined;
  readonly fetch?: boolean;
  /** Holds PATH, HOME, XDG_CACHE_HOME and the two overrides; the process's own by default. */
  readonly env?: NodeJS.ProcessEnv;
}

const PROGRAMS: Record<BrokerName, readonly string[]> = {
  redis: ["redis-server", "valkey-server"],
  nats: ["nats-server"],
};
const OVERRIDES: Record<BrokerName, string> = { redis: "TIMELINE_REDIS_SERVER", nats: "TIMELINE_NATS_SERVER" };
// Servers are often installed in these folders, which the PATH of ordinary users leaves out.
const SYSTEM_FOLDERS = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
const BINARY_FOLDERS = ["usr/bin", "usr/sbin", "bin", "sbin"];

/**
 * Finds a server to run: the named binary, then PATH, then our cache, then the machine's Debian packages.
 *
 * @throws an error that says what to install where none of these has one
 */
export async function findBroker(name: BrokerName, options: FindOptions = {}): Promise<BrokerBinary> {
  const env = options.env ?? process.env;
  const named = options.binary ?? env[OVERRIDES[name]];
  if (named !== undefined && named !== "") {
    const binary = await usable(named, "path");
    if (binary === undefined) throw new Error(`${named} is not a ${name}-server that runs here`);
    return binary;
  }
  const installed = await usable(await onPath(PROGRAMS[name], env), "path");
  if (installed !== undefined) return installed;
  const cache = await cacheFolder(env);
  return (await unpackedIn(name, join(cache, name), "cache")) ?? fetchOnce(name, cache, options, env);
}

async function fetchOnce(
  name: BrokerName,
  cache: string,
  options: FindOptions,
  env: NodeJS.ProcessEnv,
): Promise<BrokerBinary> {
  if (options.fetch === false) throw missingBroker(name, "fetching is switched off");
  for (const tool of ["apt-get", "dpkg-deb"]) {
    if ((await onPath([tool], env)) === undefined) throw missingBroker(name, `there is no ${tool} on this machine`);
  }
  const onWait = (): void => options.onProgress?.(`${name}: another process is fetching it, waiting`);
  return underLock(join(cache, `${name}.lock`), onWait, async () => {
    // Another process may have fetched it before this one got the lock.
    return (await unpackedIn(name, join(cache, name), "cache")) ?? fetchInto(name, cache, options, env);
  });
}

async function fetchInto(
  name: BrokerName,
  cache: string,
  options: FindOptions,
  env: NodeJS.ProcessEnv,
): Promise<BrokerBinary> {
  await removeLeftovers(name, cache);
  const final = join(cache, name);
  const beside = await mkdtemp(join(cache, `.${name}-`));
  const target = join(beside, "root");
  try {
    await fetchFromDebian(name, { work: join(beside, "work"), target }, env, options.onProgress).catch((error) => {
      throw missingBroker(name, error instanceof Error ? error.message : String(error));
    });
    if ((await unpackedIn(name, target, "debian")) === undefined)
      throw missingBroker(name, "the fetched server does not run here");
    // A usable one there would have been taken from the cache.
    await rm(final, { recursive: true, force: true });
    await rename(target, final);
  } finally {
    await rm(beside, { recursive: true, force: true });
  }
  const found = await unpackedIn(name, final, "debian");
  if (found === undefined) throw missingBroker(name, `${final} was removed while it was being fetched`);
  return found;
}

/** Removes what a killed fetch has left: nobody uses it while this process has the lock. */
async function removeLeftovers(name: BrokerName, cache: string): Promise<void> {
  for (const entry of await readdir(cache)) {
    if (entry.startsWith(`.${name}-`)) await rm(join(cache, entry), { recursive: true, force: true });
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
  const found: string[] = [];
  for (const base of ["usr/lib", "lib"]) {
    const names = await readdir(join(root, base)).catch(() => []);
    found.push(...names.filter((name) => name.includes("-linux-")).map((name) => join(root, base, name)));
  }
  return found;
}

async function onPath(programs: readonly string[], env: NodeJS.ProcessEnv): Promise<string | undefined> {
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

/** Resolves to undefined where the command does not run here. */
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
