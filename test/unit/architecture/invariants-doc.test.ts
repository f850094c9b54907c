import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";

const DOCUMENT = "docs/invariants.md";

const NAMES = [
  "Conservation",
  "Ack after write",
  "Confluence",
  "The dead stay dead",
  "Complete or saying so",
  "Paging",
  "Resume",
  "Outages are not poison",
  "Ids are data",
  "Attempts are counted where they are spent",
  "Everything is bounded",
  "Every 202 has one end",
];

interface Section {
  readonly heading: string;
  /** The items under "Held by:" and "Shown by:", one a line. */
  readonly held: readonly string[];
  readonly shown: readonly string[];
}

function sectionsOf(document: string): Section[] {
  return document
    .split(/^## /m)
    .slice(1)
    .map((text) => ({
      heading: text.split("\n", 1)[0] as string,
      held: itemsUnder(text, "Held by:"),
      shown: itemsUnder(text, "Shown by:"),
    }));
}

/** The items of the list under a line; what is wrapped is joined again. */
function itemsUnder(text: string, line: string): string[] {
  const list = new RegExp(`^${line}\\n\\n((?:- .*\\n(?: {2}.*\\n)*)+)`, "m").exec(text)?.[1] ?? "";
  return list
    .split(/^- /m)
    .slice(1)
    .map((item) => item.trim().replaceAll(/\s*\n\s+/g, " "));
}

/** "`file`, `name`, `name`: how". */
function faultsOfHeld(item: string): string[] {
  const [, file = "", names = ""] = /^`([^`]+)`((?:, `[^`]+`)*): \S/.exec(item) ?? [];
  if (file === "") return [`no file at the start: ${item}`];
  if (!existsSync(file)) return [`no such file: ${file}`];
  const code = readFileSync(file, "utf8");
  return [...names.matchAll(/`([^`]+)`/g)]
    .map(([, name]) => name as string)
    .filter((name) => !new RegExp(`\\b${name}\\b`).test(code))
    .map((name) => `no ${name} in ${file}`);
}

/** "`file`: "title"; "title"": a title as it stands in the file, the first argument of a call. */
function faultsOfShown(item: string): string[] {
  const [, file = "", rest = ""] = /^`(test\/[^`]+\.test\.ts)`: (.+)$/.exec(item) ?? [];
  if (file === "") return [`no test file at the start: ${item}`];
  if (!existsSync(file)) return [`no such file: ${file}`];
  const titles = [...rest.matchAll(/"([^"]+)"/g)].map(([, title]) => title as string);
  if (!/^"[^"]+"(; "[^"]+")*$/.test(rest)) return [`not a list of titles: ${item}`];
  const found = titlesIn(file);
  return titles.filter((title) => !found.has(title)).map((title) => `no test "${title}" in ${file}`);
}

function titlesIn(file: string): Set<string> {
  const code = readFileSync(file, "utf8").replaceAll(/^\s*(\/\/|\*|\/\*).*$/gm, "");
  const calls = code.matchAll(/(?<!\.(?:skip|todo))\(\s*(?:"((?:[^"\\\n]|\\.)+)"|`((?:[^`\\]|\\.)+)`),/g);
  return new Set([...calls].map(([, plain, template]) => plain ?? (template as string)));
}

function faultsOf(document: string): string[] {
  const sections = sectionsOf(document);
  const headings = sections.map(({ heading }) => heading);
  const wanted = NAMES.map((name, index) => `${index + 1}. ${name}`);
  return [
    ...wanted.filter((heading, index) => headings[index] !== heading).map((heading) => `no section: ${heading}`),
    ...sections.flatMap(({ heading, held, shown }) => [
      ...(held.length === 0 ? [`held by nothing: ${heading}`] : []),
      ...(shown.length === 0 ? [`shown by nothing: ${heading}`] : []),
      ...held.flatMap(faultsOfHeld),
      ...shown.flatMap(faultsOfShown),
    ]),
    ...document.split("\n").flatMap((line, index) => (line.length > 120 ? [`too long: line ${index + 1}`] : [])),
  ];
}

test("every file, function and test that docs/invariants.md names is there", () => {
  expect(faultsOf(readFileSync(DOCUMENT, "utf8"))).toEqual([]);
});

test("it reads what it is meant to: files and tests of every invariant", () => {
  const sections = sectionsOf(readFileSync(DOCUMENT, "utf8"));
  expect(sections).toHaveLength(NAMES.length);
  expect(sections.flatMap(({ held }) => held).length).toBeGreaterThan(40);
  expect(sections.flatMap(({ shown }) => shown).length).toBeGreaterThan(40);
});

test("what is planted against it is found", () => {
  const document = readFileSync(DOCUMENT, "utf8");
  const planted = (find: RegExp, put: string): string[] => {
    const changed = document.replace(find, put);
    expect(changed).not.toBe(document);
    return faultsOf(changed);
  };
  const file = "src/delivery/verdict.ts";
  const tests = "test/unit/delivery/verdict.test.ts";
  expect(planted(/^- `src\//m, "- `src/nowhere/")).toEqual([expect.stringMatching(/^no such file: src\/nowhere\//)]);
  expect(planted(/^- `test\//m, "- `test/nowhere/")).toEqual([expect.stringMatching(/^no such file: test\/nowhere\//)]);
  expect(planted(/^- `src\/.*$/m, `- \`${file}\`, \`verdicts\`: decides.`)).toContain(`no verdicts in ${file}`);
  expect(planted(/^- `src\//m, "- somewhere in `src/")).toEqual([expect.stringMatching(/^no file at the start/)]);
  const [whole = ""] = /^- `test\/.*\n(?: {2}.*\n)*/m.exec(document) ?? [];
  const shown = (title: string): string[] => faultsOf(document.replace(whole, `- \`${tests}\`: ${title}\n`));
  expect(shown('"retries and waits slow down, and are bounded"')).toEqual([]);
  expect(shown('"retries and waits slow down"')).toEqual([`no test "retries and waits slow down" in ${tests}`]);
  expect(shown('"a bug"')).toEqual([`no test "a bug" in ${tests}`]);
  expect(shown("it shows")).toEqual([expect.stringMatching(/^not a list of titles/)]);
  expect(planted(/^## 4\. /m, "## 5. ")).toContain("no section: 4. The dead stay dead");
  expect(planted(/^Shown by:$/m, "Shown:")).toContain("shown by nothing: 1. Conservation");
  expect(planted(/$/, "x".repeat(121))).toEqual([expect.stringMatching(/^too long/)]);
});
