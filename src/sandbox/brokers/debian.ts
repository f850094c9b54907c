import { access, constants, cp, mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { runCommand } from "../../kernel/processes.js";
import { MINUTE, SECOND } from "../../kernel/time.js";

export type BrokerName = "redis" | "nats";

/** Callback: called with the current step, and again each second while it lasts. */
export type OnProgress = (text: string) => void;

interface Packages {
  readonly wanted: readonly string[];
  /** Libraries that are fetched one by one if apt cannot resolve the dependencies this machine lacks. */
  readonly libraries: readonly string[];
}

// redis-server is a link to a program inside redis-tools, so both are needed.
const PACKAGES: Record<BrokerName, Packages> = {
  redis: { wanted: ["redis-server", "redis-tools"], libraries: ["liblzf1", "libatomic1", "libjemalloc2"] },
  nats: { wanted: ["nats-server"], libraries: [] },
};

const STEP_TIMEOUT_MS = 5 * MINUTE;
// A second C library beside the machine's would break every program that loads half of each.
const NEVER_UNPACKED = /^(libc6|libc-bin)_/;

type AptGet = (...args: string[]) => ReturnType<typeof runCommand>;

/**
 * Fetches a server from the Debian packages that the machine's own apt sources offer, and unpacks it into `root` below
 * `folder`. Needs no rights on the machine: `folder` holds private apt folders, too.
 *
 * @throws with a one-line reason
 */
export async function fetchFromDebian(
  name: BrokerName,
  folder: string,
  env: NodeJS.ProcessEnv,
  onProgress?: OnProgress,
): Promise<void> {
  const archives = join(folder, "cache", "archives");
  const root = join(folder, "root");
  const aptGet = await privateApt(folder, archives, env);
  const step = <T>(text: string, work: () => Promise<T>) => withProgress(onProgress, `${name}: ${text}`, work);
  const update = await step("reading the package lists", () => aptGet("update"));
  await step("downloading the packages", () => download(aptGet, PACKAGES[name], update.output));
  await step("unpacking", async () => {
    await mkdir(root);
    const files = (await readdir(archives)).filter((file) => file.endsWith(".deb") && !NEVER_UNPACKED.test(file));
    for (const file of files) await unpack(join(archives, file), root, env);
  });
}

async function download(aptGet: AptGet, { wanted, libraries }: Packages, updated: string): Promise<void> {
  const { code, output } = await aptGet("download", ...wanted);
  if (code !== 0) {
    // One broken third-party source fails the update although ours were read: it is named only if it mattered.
    const reason = [firstErrors(updated), firstErrors(output) || output.trim()]
      .filter((text) => text !== "")
      .join("; ");
    throw new Error(`apt-get could not download ${wanted.join(", ")}: ${reason}`);
  }
  const resolved = await aptGet("install", "--download-only", "--no-install-recommends", "--yes", ...wanted);
  if (resolved.code !== 0) for (const library of libraries) await aptGet("download", library);
}

async function unpack(archive: string, target: string, env: NodeJS.ProcessEnv): Promise<void> {
  const result = await runCommand("dpkg-deb", ["-x", archive, target], { env, timeoutMs: STEP_TIMEOUT_MS });
  if (result.code !== 0) throw new Error(`dpkg-deb could not unpack ${archive}: ${result.output.trim()}`);
}

/** An update that reached no server at all still ends with code 0 and only warns. */
function firstErrors(output: string): string {
  const lines = output.split("\n").filter((line) => /^(E: |W: Failed to fetch)/.test(line));
  return lines.slice(0, 3).join(" ").trim();
}

/** Names the current step, and repeats it each second with the time it has taken. */
async function withProgress<T>(onProgress: OnProgress | undefined, text: string, work: () => Promise<T>): Promise<T> {
  if (onProgress === undefined) return work();
  onProgress(text);
  let seconds = 0;
  const timer = setInterval(() => {
    seconds++;
    onProgress(`${text} (${seconds} s)`);
  }, SECOND);
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

/**
 * Sets up private apt folders under `root`, so that no step needs rights on the machine's own. Sources, keys, pins and
 * proxies are copies of the machine's; files that this user may not read are left out: they would fail apt.
 */
async function privateApt(root: string, archives: string, env: NodeJS.ProcessEnv): Promise<AptGet> {
  const etc = join(root, "etc");
  const isReadable = (path: string): Promise<boolean> =>
    access(path, constants.R_OK).then(
      () => true,
      () => false,
    );
  await cp("/etc/apt", etc, { recursive: true, dereference: true, filter: isReadable });
  await mkdir(join(root, "state", "lists", "partial"), { recursive: true });
  await mkdir(join(archives, "partial"), { recursive: true });
  const early = join(root, "early.conf");
  // apt reads its configuration before the command line: only APT_CONFIG can still point it elsewhere.
  await writeFile(early, `Dir::Etc "${etc}";\n`);
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
  const lines = Object.entries(settings).map(([name, value]) => `${name} "${value}";\n`);
  const late = join(root, "late.conf");
  await writeFile(late, [...lines, ...HOOKS.map((hook) => `#clear ${hook};\n`)].join(""));
  const options = {
    cwd: archives,
    env: { ...env, APT_CONFIG: early, LC_ALL: "C", DEBIAN_FRONTEND: "noninteractive" },
    timeoutMs: STEP_TIMEOUT_MS,
  };
  return (...args) => runCommand("apt-get", ["-c", late, "-qq", ...args], options);
}
