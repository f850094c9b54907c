/** Counts the tests in the JSON that jest wrote to the files named; exits 1 if one failed, or if none passed. */
import { existsSync, readFileSync } from "node:fs";

/** Without results the run did not come as far as a test. */
const filesOf = (path) =>
  existsSync(path) ? JSON.parse(readFileSync(path, "utf8")).testResults : [{ status: "failed" }];

const count = { passed: 0, failed: 0, pending: 0 };
for (const { status: whole, assertionResults: tests = [] } of process.argv.slice(2).flatMap(filesOf)) {
  for (const { status } of tests) count[status] = (count[status] ?? 0) + 1;
  if (whole === "failed" && tests.every(({ status }) => status !== "failed")) count.failed++;
}
console.log(`${count.pending} skipped`);
console.log(`${count.passed} passed, ${count.failed} failed`);
process.exitCode = count.failed === 0 && count.passed > 0 ? 0 : 1;
