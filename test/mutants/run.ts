// Breaks one hot line after the other in a copy of the sources, and asserts that a test of `npm test` fails for each.
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MUTANTS } from "./mutants.js";

const only = process.argv[2];
const copy = mkdtempSync(join(tmpdir(), "mutants-"));
process.on("exit", () => rmSync(copy, { recursive: true, force: true }));
for (const name of [".npmrc", "src", "test", "proto", "nats", "package.json", "tsconfig.json", "jest.config.mjs"])
  cpSync(name, join(copy, name), { recursive: true });
for (const name of ["node_modules", "docs", "charts"]) symlinkSync(join(process.cwd(), name), join(copy, name));

interface Results {
  readonly numFailedTests: number;
  readonly numPassedTests: number;
  readonly testResults: readonly { readonly message: string }[];
}

/** Jest's exit code is 1 too if it finds no test or cannot run a file: only a failed assertion counts. */
function isCaught(file: string): boolean {
  const args = ["--runTestsByPath", `test/${file}`, "--json", "--silent"];
  const { stdout, stderr } = spawnSync("npx", ["jest", ...args], { cwd: copy, encoding: "utf8", maxBuffer: 2 ** 28 });
  if (stdout === "") throw new Error(stderr);
  const { numFailedTests, numPassedTests, testResults } = JSON.parse(stdout) as Results;
  if (numFailedTests + numPassedTests === 0) throw new Error(testResults.map(({ message }) => message).join("\n"));
  return numFailedTests > 0;
}

let missed = 0;
for (const { what, source, text, mutated, test } of MUTANTS) {
  if (only !== undefined && !what.includes(only)) continue;
  const file = join(copy, "src", source);
  const original = readFileSync(file, "utf8");
  if (original.split(text).length !== 2) throw new Error(`src/${source} does not have this text once: ${text}`);
  writeFileSync(
    file,
    original.replace(text, () => mutated),
  );
  const caught = isCaught(test);
  writeFileSync(file, original);
  if (!caught) missed++;
  console.log(`${caught ? "caught" : "MISSED"}  ${what} (src/${source}, test/${test})`);
}
console.log(`${missed} missed`);
process.exitCode = missed === 0 ? 0 : 1;
