import { existsSync, readdirSync, readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { parseSync } from "@swc/core";

/** Folders and files of src, and folders of clients, without a violation, one a line. */
const CLEAN: readonly string[] = [
  // These are sorted, so that two changes seldom meet.
  "analysis",
  "bridge",
  "cli",
  "clients/typescript/src",
  "consistency",
  "contracts",
  "delivery",
  "erasure",
  "fanout",
  "gateway",
  "kernel",
  "main.ts",
  "notifications",
  "operators",
  "outbox",
  "platform",
  "posts",
  "reads",
  "rewards",
  "roles",
  "sandbox",
  "state",
  "telemetry",
  "upstreams",
  "users",
];

/** `WORDS=state,reads npx jest test/unit/architecture/words.test.ts` lists the violations of these folders instead. */
const CHECKED = process.env["WORDS"]?.split(",") ?? CLEAN;

/** These words say what kind of thing a variable is for, not what it is. */
const NAMES = new Set(["at", "found", "held", "left", "of", "one", "own", "some"]);

/** "Where" is right for a place: after these words, and in "where it is". */
const PLACE =
  "from|to|of|says?|tells?|knows?|known|remembers?|finds?|shows?|places?|positions?|points?|continues?|begins?|starts?|ends?|ended|stops?|stopped|on";

const COMMENT = /\/\*[\s\S]*?\*\/|(?<!:)\/\/.*$/gm;

interface Violation {
  readonly pattern: string;
  readonly line: number;
  readonly text: string;
}

/** Patterns for the whole text of a file. */
const IN_TEXT: Readonly<Record<string, RegExp>> = {
  'so many: write "maximum number of", with unit and bound': /\bso many\b/gi,
  "a literal that groups fields against the formatter": /\.\.\.\{\s/g,
};

/** Patterns for one comment. */
const IN_COMMENTS: Readonly<Record<string, RegExp>> = {
  "a doc comment names its subject first":
    /^\/\*\*[\s*]*(It|Its|This|These|They|Those|Such|What|Who|Whose|Whoever|Whether)\b/g,
  "such a": /\bsuch an?\b/gi,
  "where for if": new RegExp(
    `(?<!\\b(?:${PLACE})[\\s*]+)\\bwhere\\b(?! (?:it|he|they|that) (?:is|are|stands?|was|were)\\b)`,
    "gi",
  ),
};

function* matches(
  patterns: Readonly<Record<string, RegExp>>,
  text: string,
  start: number,
): Generator<[string, number]> {
  for (const [pattern, expression] of Object.entries(patterns))
    for (const match of text.matchAll(expression)) yield [pattern, start + match.index];
}

type Node = Readonly<Record<string, unknown>> & { readonly type: string };

const isNode = (value: unknown): value is Node => typeof value === "object" && value !== null && "type" in value;
const listed = (value: unknown): unknown[] => (Array.isArray(value) ? value : [value]);

/** Names that a pattern of a declaration or of a parameter binds. */
function bound(pattern: unknown): string[] {
  if (!isNode(pattern)) return [];
  const inner = ["pat", "param", "argument", "left", "elements", "properties", "key"];
  if (pattern.type === "Identifier") return [String(pattern["value"])];
  if (pattern.type === "KeyValuePatternProperty") return bound(pattern["value"]);
  return inner.flatMap((field) => listed(pattern[field]).flatMap(bound));
}

const BINDING_FIELDS: Readonly<Record<string, string>> = {
  VariableDeclarator: "id",
  FunctionDeclaration: "identifier",
  CatchClause: "param",
};

/** Names of variables, functions and parameters, those of function types included. */
function declared(node: unknown): string[] {
  if (Array.isArray(node)) return node.flatMap(declared);
  if (typeof node !== "object" || node === null) return [];
  const below = Object.values(node).flatMap(declared);
  if (!isNode(node)) return below;
  const field = BINDING_FIELDS[node.type];
  const name = field === undefined ? [] : bound(node[field]);
  const parameters = Array.isArray(node["params"]) ? node["params"].flatMap(bound) : [];
  return [...below, ...name, ...parameters];
}

function violations(file: string, text: string): Violation[] {
  const lineOf = (index: number): number => text.slice(0, index).split("\n").length;
  const inComments = [...text.matchAll(file.endsWith(".lua") ? /--.*$/gm : COMMENT)].flatMap((comment) => [
    ...matches(IN_COMMENTS, comment[0], comment.index),
  ]);
  const places = [...matches(IN_TEXT, text, 0), ...inComments].map(([pattern, index]) => ({
    pattern,
    line: lineOf(index),
    text: text.slice(index, index + 60).split("\n", 1)[0] ?? "",
  }));
  const names = file.endsWith(".ts") ? declared(parseSync(text, { syntax: "typescript" })) : [];
  const vague = names.filter((name) => NAMES.has(name));
  return [...places, ...vague.map((name) => ({ pattern: "a vague name", line: 0, text: name }))];
}

const pathOf = (name: string): string => (name.startsWith("clients/") ? name : `src/${name}`);

function violationsOf(name: string): string[] {
  const path = pathOf(name);
  const files = path.endsWith(".ts") ? [""] : readdirSync(path, { recursive: true, encoding: "utf8" });
  return files
    .map((file) => (file === "" ? path : `${path}/${file}`))
    .filter((file) => /\.(ts|lua)$/.test(file) && !file.includes("/gen/"))
    .flatMap((file) =>
      violations(file, readFileSync(file, "utf8")).map(
        ({ pattern, line, text }) => `${file}:${line} ${pattern}: ${text}`,
      ),
    );
}

test("each pattern finds what is planted against it", () => {
  const text = [
    "/** It is so many, where set. A message begins where the log ends. */",
    "const f = (at: number, { own: held }: Own, [one]: string[]) => ({ ...{ a, b } });",
    "/** Such a user",
    " *  where blocked.",
    " */",
    "export type F = (of: string) => void; // where it is",
    "try { for (const some of all) f(); } catch (found) {}",
    'const url = "http://where";',
  ].join("\n");
  expect(
    violations("planted.ts", text)
      .map(({ line, pattern }) => `${line} ${pattern.slice(0, 10)}`)
      .toSorted(),
  ).toEqual([
    ...["at", "found", "held", "of", "one", "some"].map(() => "0 a vague na"),
    "1 a doc comm",
    "1 so many: w",
    "1 where for ",
    "2 a literal ",
    "3 a doc comm",
    "3 such a",
    "4 where for ",
  ]);
  expect(violations("planted.lua", "-- where it was, where set\nlocal at = 1").map(({ line }) => line)).toEqual([1]);
});

test("a clean folder has none of them", () => {
  expect(CHECKED.flatMap(violationsOf)).toEqual([]);
});

test("the clean folders are sorted, and exist", () => {
  expect(CLEAN).toEqual(CLEAN.toSorted());
  expect(CLEAN.filter((name) => !existsSync(pathOf(name)))).toEqual([]);
});
