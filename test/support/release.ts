import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";

/** The newest release. The commit after a release names it here. */
export const RELEASE = { version: "0.2.0", commit: "e2a82d78b393bd435140fb70d74d53c12b2d386a" } as const;

const FOLDER = join(process.cwd(), "node_modules/.cache/avion-timeline-release", RELEASE.commit);
const PROGRAM = join(FOLDER, "node_modules/.cache/avion-timeline-test/bundle/start.cjs");
/** The release bundles itself, as this tree does before its tests. */
const BUNDLE = 'await (await import("./test/support/jest/bundle.mjs")).default()';

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

/** Builds the newest release unless it is there already, which its last step shows. Returns the path of its program. */
export function buildRelease(): string {
  if (existsSync(PROGRAM)) return PROGRAM;
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  execFileSync("tar", ["-x", "-C", FOLDER], { input: git("archive", RELEASE.commit) });
  linkLibraries();
  run("npm", "run", "build");
  run("node", "--input-type=module", "--eval", BUNDLE);
  return PROGRAM;
}

/** Takes the libraries of this tree while they are the same. The cache of the tests is no library. */
function linkLibraries(): void {
  const tree = process.cwd();
  if (librariesOf(FOLDER) !== librariesOf(tree)) return run("npm", "ci", "--no-audit", "--no-fund");
  mkdirSync(join(FOLDER, "node_modules"));
  for (const name of readdirSync(join(tree, "node_modules")))
    if (name !== ".cache") symlinkSync(join(tree, "node_modules", name), join(FOLDER, "node_modules", name));
}

const librariesOf = (folder: string): string =>
  JSON.stringify(JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).dependencies);

function run(program: string, ...args: readonly string[]): void {
  const { PATH, HOME } = process.env;
  execFileSync(program, args, { cwd: FOLDER, env: { PATH, HOME }, stdio: "pipe" });
}
