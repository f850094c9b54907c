import { access, constants, cp, mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { runCommand } from "../../kernel/processes.js";

export type BrokerName = "redis" | "nats";

/** This is called with the current step, and again each second while it lasts. */
export type OnProgress = (text: string) => void;

interface Packages {
  readonly wanted: readonly string[];
  /** Fetched one by one where apt cannot resolve the dependencies this machine lacks. */
  readonly libraries: readonly string[];
}

// redis-server is a link to a program inside redis-tools, so both are needed.
const PACKAGES: Record<BrokerName, Packages> = {
  redis: { wanted: ["redis-server", "redis-tools"], libraries: ["liblzf1", "libatomic1", "libjemalloc2"] },
  nats: { wanted: ["nats-server"], libraries: [] },
};

const UPDATE_TIMEOUT_MS = 5 * 60_000;
const DOWNLOAD_TIMEOUT_MS = 5 * 60_000;
const UNPACK_TIMEOUT_MS = 60_000;
// A second C library beside the machine's would break every program that loads half of each.
const NEVER_UNPACKED = /^(libc6|libc-bin)_/;

/**
 * Fetches a server from the Debian packages that the machine's own apt sources offer, and unpacks it into `target`.
 * Needs no rights on the machine: `work` holds private apt folders.
 *
 * @throws with a one-line reason
 */
export async function fetchFromDebian(
  name: BrokerName,
  folders: { readonly work: string; readonly target: string },
  env: NodeJS.ProcessEnv,
  onProgress?: OnProgress,
): Promise<void> {
  const apt = await privateApt(join(folders.work, "apt"), env);
  const debs = join(folders.work, "debs");
  await mkdir(debs, { recursive: true });
  await mkdir(folders.target, { recursive: true });
  const step = <T>(text: string, work: () => Promise<T>) => withProgress(onProgress, `${name}: ${text}`, work);
  const update = await step("reading the package lists", () =>
    aptGet(apt, ["update"], folders.work, UPDATE_TIMEOUT_MS),
  );
  const archives = await step("downloading the packages", () =>
    download(apt, PACKAGES[name], { debs, archives: join(folders.work, "apt", "cache", "archives") }, update),
  );
  await step("unpacking", async () => {
    for (const archive of archives) await unpack(archive, folders.target, env);
  });
  await rm(folders.work, { recursive: true, force: true });
}

async function download(
  apt: AptSettings,
  packages: Packages,
  folders: { readonly debs: string; readonly archives: string },
  update: Result,
): Promise<string[]> {
  const result = await aptGet(apt, ["download", ...packages.wanted], folders.debs, DOWNLOAD_TIMEOUT_MS);
  if (result.code !== 0) {
    // One broken third-party source fails the update although ours were read: it is named only if it mattered.
    const reason = [firstErrors(update), firstErrors(result)].filter((text) => text !== "").join("; ");
    throw new Error(`apt-get could not download ${packages.wanted.join(", ")}: ${reason}`);
  }
  const missing = ["install", "--download-only", "--no-install-recommends", "--yes", ...packages.wanted];
  const resolved = await aptGet(apt, missing, folders.debs, DOWNLOAD_TIMEOUT_MS);
  if (resolved.code !== 0) {
    for (const library of packages.libraries) {
      await aptGet(apt, ["download", library], folders.debs, DOWNLOAD_TIMEOUT_MS);
    }
  }
  return [...(await debsIn(folders.archives)), ...(await debsIn(folders.debs))];
}

async function debsIn(folder: string): Promise<string[]> {
  const names = await readdir(folder);
  return names.filter((name) => name.endsWith(".deb") && !NEVER_UNPACKED.test(name)).map((name) => join(folder, name));
}

async function unpack(archive: string, target: string, env: NodeJS.ProcessEnv): Promise<void> {
  const result = await runCommand("dpkg-deb", ["-x", archive, target], { env, timeoutMs: UNPACK_TIMEOUT_MS });
  if (result.code !== 0) throw new Error(`dpkg-deb could not unpack ${archive}: ${result.output.trim()}`);
}

type Result = Awaited<ReturnType<typeof runCommand>>;

function aptGet(apt: AptSettings, args: readonly string[], cwd: string, timeoutMs: number): Promise<Result> {
  return runCommand("apt-get", [...apt.args, ...args], { cwd, env: apt.env, timeoutMs });
}

/** An update that reached no server at all still ends with code 0 and only warns. */
function firstErrors(result: Result): string {
  const lines = result.output.split("\n").filter((line) => /^(E: |W: Failed to fetch)/.test(line));
  const shown = lines.length === 0 && result.code !== 0 ? result.output.trim().split("\n") : lines;
  return shown.slice(0, 3).join(" ").trim();
}

const TICK_MS = 1_000;

/** Names the current step, and repeats it each second with the time it has taken. */
async function withProgress<T>(onProgress: OnProgress | undefined, text: string, work: () => Promise<T>): Promise<T> {
  if (onProgress === undefined) return work();
  onProgress(text);
  let seconds = 0;
  const timer = setInterval(() => {
    seconds += TICK_MS / 1_000;
    onProgress(`${text} (${seconds} s)`);
  }, TICK_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

const HOOKS = [
  "APT::Update::Pre-Invoke",
  "APT::Update::Post-Invoke",
  "APT::Update::Post-Invoke-Success",
  "DPkg::Pre-Invoke",
  "DPkg::Post-Invoke",
  "DPkg::Pre-Install-Pkgs",
  "AptCli::Hooks",
];

interface AptSettings {
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

/**
 * Sets up private apt folders under `root`, so that no step needs rights on the machine's own. Sources, keys, pins and
 * proxies are copies of the machine's; files that this user may not read are left out: they would fail apt.
 */
async function privateApt(root: string, env: NodeJS.ProcessEnv): Promise<AptSettings> {
  const etc = join(root, "etc");
  const isReadable = (path: string): Promise<boolean> =>
    access(path, constants.R_OK).then(
      () => true,
      () => false,
    );
  await cp("/etc/apt", etc, { recursive: true, dereference: true, filter: isReadable });
  await mkdir(join(root, "state", "lists", "partial"), { recursive: true });
  await mkdir(join(root, "cache", "archives", "partial"), { recursive: true });
  const early = join(root, "early.conf");
  // apt reads its configuration before the command line: only APT_CONFIG can still point it elsewhere.
  await writeFile(early, `Dir::Etc "${etc}";\n`);
  const late = join(root, "late.conf");
  await writeFile(late, HOOKS.map((hook) => `#clear ${hook};\n`).join(""));
  const settings = {
    "Dir::Etc": etc,
    "Dir::State": join(root, "state"),
    "Dir::State::status": "/var/lib/dpkg/status",
    "Dir::Cache": join(root, "cache"),
    "Dir::Log": join(root, "log"),
    "APT::Sandbox::User": "root",
    "Acquire::Languages": "none",
    "Acquire::Retries": "2",
    "Acquire::http::Timeout": "20",
    "Acquire::https::Timeout": "20",
    "APT::Get::List-Cleanup": "false",
    "Debug::NoLocking": "1",
  };
  const options = Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
  return {
    args: ["-c", late, ...options, "-qq"],
    env: { ...env, APT_CONFIG: early, LC_ALL: "C", DEBIAN_FRONTEND: "noninteractive" },
  };
}
