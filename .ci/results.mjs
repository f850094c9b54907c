/**
 * Reads the JSON that jest writes.
 *
 * - `failed FILE`: the test files that failed, if they are few; nothing if they are many.
 * - `count FILE AGAIN ...`: counts the tests of pairs of runs. Test files of AGAIN, if there was such a run, replace
 *   those of FILE.
 */
import { existsSync, readFileSync } from "node:fs";

const FEW = 3;

/** Without results the run did not come as far as a test. */
const filesOf = (path) =>
  existsSync(path) ? JSON.parse(readFileSync(path, "utf8")).testResults : [{ name: path, status: "failed" }];

const namesOfFailed = (path) => filesOf(path).flatMap(({ name, status }) => (status === "failed" ? [name] : []));

function counted(paths) {
  const count = { passed: 0, failed: 0, pending: 0 };
  for (let at = 0; at < paths.length; at += 2) {
    const runs = paths.slice(at, at + 2).filter((path, index) => index === 0 || existsSync(path));
    const files = new Map(runs.flatMap(filesOf).map((file) => [file.name, file]));
    for (const { status: whole, assertionResults: tests = [] } of files.values()) {
      for (const { status } of tests) count[status] = (count[status] ?? 0) + 1;
      if (whole === "failed" && tests.every(({ status }) => status !== "failed")) count.failed++;
    }
  }
  return count;
}

const [verb, ...paths] = process.argv.slice(2);
if (verb === "failed") {
  const names = existsSync(paths[0]) ? namesOfFailed(paths[0]) : [];
  if (names.length <= FEW) console.log(names.join("\n"));
} else {
  const { passed, failed, pending } = counted(paths);
  console.log(`${pending} skipped`);
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
}
