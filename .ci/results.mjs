/**
 * Counts the tests in the JSON that jest wrote to the files named, and names those that failed: first with the begin of
 * each failure, at the end in a line each, since often only the end of an output is shown. Exits 1 if one failed, or if
 * none passed. Where a few test files failed, they have run once more, alone: `x-again.json` beside `x.json` counts for
 * them, and what failed at first is named, too. With --failed it names the test files that should run once more.
 */
import { existsSync, readFileSync } from "node:fs";
import { relative } from "node:path";
import { stripVTControlCharacters } from "node:util";

const LINES_OF_A_FAILURE = 8;
/** Maximum length of a line, in characters. */
const MAX_LINE = 150;
/** More test files that fail are no accident of a busy machine. */
const MOST_RUN_AGAIN = 6;

/** Without results the run did not come as far as a test. */
const filesOf = (path) =>
  existsSync(path) ? JSON.parse(readFileSync(path, "utf8")).testResults : [{ status: "failed", name: path }];

const isFailed = ({ status }) => status === "failed";

const shortened = (line) => (line.length <= MAX_LINE ? line : `${line.slice(0, MAX_LINE - 1)}…`);

/** Prints the failures of a test file. Returns a line for each. */
function describe(heading, { name, message, assertionResults: tests = [] }) {
  const file = relative("", name);
  const failed = tests.filter(isFailed).map(({ fullName, failureMessages: [text] }) => [`${file}: ${fullName}`, text]);
  return (failed.length > 0 ? failed : [[file, message]]).map(([what, text = ""]) => {
    const line = shortened(`${heading} ${what}`);
    const lines = stripVTControlCharacters(text).split("\n").slice(0, LINES_OF_A_FAILURE);
    console.log([line, ...lines.map(shortened)].join("\n"));
    return line;
  });
}

function count(paths) {
  const found = { passed: 0, failed: 0, pending: 0, lines: [] };
  for (const path of paths) {
    const again = path.replace(/\.json$/, "-again.json");
    const last = existsSync(again) ? filesOf(again) : [];
    for (const file of filesOf(path)) {
      const now = last.find(({ name }) => name === file.name) ?? file;
      if (now !== file) found.lines.push(...describe("FAILED AT FIRST", file));
      for (const { status } of now.assertionResults ?? []) found[status] = (found[status] ?? 0) + 1;
      if (!isFailed(now)) continue;
      found.lines.push(...describe("FAILED", now));
      if (!(now.assertionResults ?? []).some(isFailed)) found.failed++;
    }
  }
  return found;
}

const [first, ...others] = process.argv.slice(2);
if (first === "--failed") {
  const failed = others
    .filter((path) => existsSync(path))
    .flatMap(filesOf)
    .filter(isFailed);
  if (failed.length <= MOST_RUN_AGAIN) for (const { name } of failed) console.log(name);
} else {
  const { passed, failed, pending, lines } = count([first, ...others]);
  for (const line of lines) console.log(line);
  console.log(`${pending} skipped`);
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
}
