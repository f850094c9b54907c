import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";

/** The newest release. The commit after a release names it here. */
export const RELEASE = { version: "0.2.0", commit: "e2a82d78b393bd435140fb70d74d53c12b2d386a" } as const;

const FOLDER = join(process.cwd(), "node_modules/.cache/avion-timeline-release");

/** A checkout may belong to another user than the tests. */
const git = (...args: readonly string[]): Buffer =>
  execFileSync("git", ["-c", "safe.directory=*", ...args], { maxBuffer: 2 ** 28, stdio: ["ignore", "pipe", "pipe"] });

/** A shallow clone and an archive have no history. */
export function hasRelease(): boolean {
  try {
    git("cat-file", "-e", `${RELEASE.commit}^{commit}`);
    return true;
  } catch {
    return false;
  }
}

/** Builds the newest release unless it is there already. Returns the path of its program. */
export function buildRelease(): string {
  const built = join(FOLDER, RELEASE.commit);
  if (!existsSync(built)) {
    const draft = `${built}-${process.pid}`;
    mkdirSync(draft, { recursive: true });
    execFileSync("tar", ["-x", "-C", draft], { input: git("archive", RELEASE.commit) });
    installLibraries(draft);
    execFileSync("npm", ["run", "build"], { cwd: draft, stdio: "pipe" });
    rmSync(built, { recursive: true, force: true });
    renameSync(draft, built);
  }
  return join(built, "dist/main.js");
}

/** Uses the libraries of this tree while they are the same. */
function installLibraries(folder: string): void {
  if (librariesOf(folder) === librariesOf(process.cwd()))
    symlinkSync(join(process.cwd(), "node_modules"), join(folder, "node_modules"));
  else execFileSync("npm", ["ci", "--no-audit", "--no-fund"], { cwd: folder, stdio: "pipe" });
}

const librariesOf = (folder: string): string =>
  JSON.stringify(JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).dependencies);
