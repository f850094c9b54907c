import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { type CommandResult, runCommand } from "../../kernel/run-command.js";
import { type AptSettings, privateApt } from "./apt-settings.js";
import { withProgress } from "./progress.js";
import type { BrokerName, OnProgress } from "./types.js";

/** What to fetch for one server. */
type Packages = {
  /** Always fetched, installed on the machine or not. */
  readonly wanted: readonly string[];
  /** Fetched one by one where apt cannot work out by itself what this machine lacks. */
  readonly libraries: readonly string[];
};

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
 * Needs no rights on the machine: `work` holds private apt folders. Throws with a one-line reason.
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
  const update = await withProgress(onProgress, `${name}: reading the package lists`, () =>
    aptGet(apt, ["update"], folders.work, UPDATE_TIMEOUT_MS),
  );
  const archives = await withProgress(onProgress, `${name}: downloading the packages`, () =>
    download(apt, PACKAGES[name], { debs, archives: join(folders.work, "apt", "cache", "archives") }, update),
  );
  await withProgress(onProgress, `${name}: unpacking`, async () => {
    for (const archive of archives) await unpack(archive, folders.target, env);
  });
  await rm(folders.work, { recursive: true, force: true });
}

async function download(
  apt: AptSettings,
  packages: Packages,
  folders: { readonly debs: string; readonly archives: string },
  update: CommandResult,
): Promise<string[]> {
  const result = await aptGet(apt, ["download", ...packages.wanted], folders.debs, DOWNLOAD_TIMEOUT_MS);
  if (result.code !== 0) {
    // One broken third-party source fails the update although ours were read, so it is only told when it mattered.
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

function aptGet(apt: AptSettings, args: readonly string[], cwd: string, timeoutMs: number): Promise<CommandResult> {
  return runCommand("apt-get", [...apt.args, ...args], { cwd, env: apt.env, timeoutMs });
}

// An update that reached no server at all still ends with code 0 and only warns.
function firstErrors(result: CommandResult): string {
  const lines = result.output.split("\n").filter((line) => /^(E: |W: Failed to fetch)/.test(line));
  const shown = lines.length === 0 && result.code !== 0 ? result.output.trim().split("\n") : lines;
  return shown.slice(0, 3).join(" ").trim();
}
