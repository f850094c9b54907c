import { copyFile, mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

const ETC = "/etc/apt";
const FILES = ["apt.conf", "sources.list", "preferences"];
const FOLDERS = ["apt.conf.d", "sources.list.d", "preferences.d"];
// The machine's hooks clean or index the machine's own folders, which are none of our business.
const HOOKS = [
  "APT::Update::Pre-Invoke",
  "APT::Update::Post-Invoke",
  "APT::Update::Post-Invoke-Success",
  "DPkg::Pre-Invoke",
  "DPkg::Post-Invoke",
  "DPkg::Pre-Install-Pkgs",
  "AptCli::Hooks",
];

/** How to call apt-get with folders of our own. */
export type AptSettings = { readonly args: readonly string[]; readonly env: NodeJS.ProcessEnv };

/**
 * Sets up private apt folders under `root`, so that no step needs any right on the machine's own. The sources, pins
 * and proxies are copies of the machine's; files this user may not read are left out instead of failing apt.
 */
export async function privateApt(root: string, env: NodeJS.ProcessEnv): Promise<AptSettings> {
  const etc = join(root, "etc");
  await copySettings(etc);
  await mkdir(join(root, "state", "lists", "partial"), { recursive: true });
  await mkdir(join(root, "cache", "archives", "partial"), { recursive: true });
  const early = join(root, "early.conf");
  // apt reads its configuration before the command line: only APT_CONFIG can still point it elsewhere.
  await writeFile(early, `Dir::Etc "${etc}";\n`);
  const late = join(root, "late.conf");
  await writeFile(late, HOOKS.map((hook) => `#clear ${hook};\n`).join(""));
  const settings = {
    "Dir::Etc": etc,
    "Dir::Etc::Trusted": join(ETC, "trusted.gpg"),
    "Dir::Etc::TrustedParts": join(ETC, "trusted.gpg.d"),
    "Dir::Etc::netrc": join(ETC, "auth.conf"),
    "Dir::Etc::netrcparts": join(ETC, "auth.conf.d"),
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

async function copySettings(etc: string): Promise<void> {
  await mkdir(etc, { recursive: true });
  for (const name of FILES) await copyIfReadable(join(ETC, name), join(etc, name));
  for (const folder of FOLDERS) {
    await mkdir(join(etc, folder), { recursive: true });
    const names = await readdir(join(ETC, folder)).catch(() => []);
    for (const name of names) await copyIfReadable(join(ETC, folder, name), join(etc, folder, name));
  }
}

async function copyIfReadable(from: string, to: string): Promise<void> {
  await copyFile(from, to).catch(() => undefined);
}
