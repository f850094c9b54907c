// Breaks one hot line after the other in a copy of the sources, and asserts that a test of `npm test` fails for each.
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Each: what is broken; the file in src; the text, which it has once, and what takes its place; the test file. */
const MUTANTS = [
  [
    "a merge is complete down to the lowest floor",
    "state/entries/merge.ts",
    ["Math.max(...", "Math.min(..."],
    "unit/state/merge.test.ts",
  ],
  [
    "a drop seen twice by a merge has its larger time",
    "state/entries/merge.ts",
    ["entry.score < known.score", "entry.score > known.score"],
    "unit/state/merge.test.ts",
  ],
  [
    "a cached page may show a deleted drop",
    "state/entries/page-cache.ts",
    ["this.#deleted.push(drop);", ""],
    "integration/read-cache.test.ts",
  ],
  [
    "a full timeline is not trimmed",
    "state/entries/add-entries.lua",
    ["if size > cap then", "if size > 2 * cap then"],
    "integration/redis-bounds.test.ts",
  ],
  [
    "the floor does not rise over what a trim removes",
    "state/entries/add-entries.lua",
    ["tonumber(last[2]), 1)", "1)"],
    "integration/redis-add-entries.test.ts",
  ],
  [
    "a repost of a hidden person's drop comes into a stored home",
    "state/entries/add-entries.lua",
    ["[3] == 'all'", "[3] == 'never'"],
    "integration/timeline-hidden.test.ts",
  ],
  [
    "a stream does not notice that it missed a notification",
    "gateway/session.ts",
    ["previous !== undefined && previous <= this.#seq", "previous !== undefined"],
    "integration/gateway-faults.test.ts",
  ],
  [
    "one attempt more than allowed is made",
    "delivery/verdict.ts",
    ["attempt >= limits.maxAttempts", "attempt > limits.maxAttempts"],
    "unit/delivery/verdict.test.ts",
  ],
  [
    "of two changes of one version the follow is in force",
    "state/fences/change-edges.lua",
    ["== version and s == '0'", "== version and s == '1'"],
    "integration/redis-records.test.ts",
  ],
  [
    "an event of an erased user in a batch is applied",
    "state/erased/standing.ts",
    ["gone.size === 0 ? all : all.filter(", "gone.size >= 0 ? all : all.filter("],
    "integration/fanout-erased.test.ts",
  ],
  [
    "an answer about the incarnation before counts for the next one",
    "platform/nats/incarnation.ts",
    ["if (suspicions === this.#suspicions) ", ""],
    "unit/platform/incarnation.test.ts",
  ],
];

const only = process.argv[2];
const copy = mkdtempSync(join(tmpdir(), "mutants-"));
process.on("exit", () => rmSync(copy, { recursive: true, force: true }));
for (const name of [".npmrc", "src", "test", "proto", "nats", "package.json", "tsconfig.json", "jest.config.mjs"])
  cpSync(name, join(copy, name), { recursive: true });
for (const name of ["node_modules", "docs", "charts"]) symlinkSync(join(process.cwd(), name), join(copy, name));

/** Jest's exit code is 1 too if it finds no test or cannot run a file: only a failed assertion counts. */
function isCaught(file) {
  const args = ["--runTestsByPath", `test/${file}`, "--json", "--silent"];
  const { stdout, stderr } = spawnSync("npx", ["jest", ...args], { cwd: copy, encoding: "utf8", maxBuffer: 2 ** 28 });
  if (stdout === "") throw new Error(stderr);
  const { numFailedTests, numPassedTests, testResults } = JSON.parse(stdout);
  if (numFailedTests + numPassedTests === 0) throw new Error(testResults.map(({ message }) => message).join("\n"));
  return numFailedTests > 0;
}

let missed = 0;
for (const [what, source, [text, mutated], test] of MUTANTS) {
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
