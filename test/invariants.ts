import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Prints which tests show which invariants of docs/invariants.md, as a Markdown table. A comment `// Invariants 1, 7.`
 * above a test names them.
 */
const TAG = /^\s*\/\/ Invariants? ((?:\d+(?:, )?)+)\.$/;
/** A title is the first argument of a call. */
const TITLE = /(?<!\.(?:skip|todo))\(\s*(?:"((?:[^"\\\n]|\\.)+)"|`((?:[^`\\]|\\.)+)`),/;

interface Tagged {
  readonly invariant: number;
  readonly file: string;
  readonly title: string | undefined;
}

/** One for each invariant of each test. */
export function taggedIn(file: string, code: string): Tagged[] {
  const lines = code.split("\n");
  return lines.flatMap((line, at) => {
    const [, numbers] = TAG.exec(line) ?? [];
    if (numbers === undefined) return [];
    const [, plain, template] = TITLE.exec(lines.slice(at + 1).join("\n")) ?? [];
    return numbers.split(", ").map((number) => ({ invariant: Number(number), file, title: plain ?? template }));
  });
}

export const tagged = (): Tagged[] =>
  readdirSync("test", { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".test.ts"))
    .map((file) => join("test", file))
    .flatMap((file) => taggedIn(file, readFileSync(file, "utf8")));

function invariantsAsMarkdown(): string {
  const rows = tagged().sort((a, b) => a.invariant - b.invariant || (a.file < b.file ? -1 : 1));
  const cells = rows.map(({ invariant, file, title }) => `| ${invariant} | ${file} | ${title} |`);
  return ["| Invariant | File | Test |", "| --- | --- | --- |", ...cells].join("\n");
}

if (process.argv[1] === import.meta.filename) console.log(invariantsAsMarkdown());
