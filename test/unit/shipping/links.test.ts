import { existsSync, readdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "@jest/globals";
import { inRepository, readText } from "./files.js";

const ROOT_DOCUMENTS = [
  "README.md",
  "CONTRIBUTING.md",
  "CHANGELOG.md",
  "SECURITY.md",
  "test/support/README.md",
  "clients/typescript/README.md",
];

const documentsIn = (folder: string): string[] =>
  readdirSync(inRepository(folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name));

const chartFiles = (): string[] =>
  readdirSync(inRepository("charts"), { recursive: true, encoding: "utf8" })
    .map((name) => join("charts", name))
    .filter((file) => statSync(inRepository(file)).isFile());

const withoutCode = (markdown: string): string => markdown.replaceAll(/^```[\s\S]*?^```/gm, "");

/** The anchors of a document's headings, as GitHub makes them. */
function anchorsOf(markdown: string): ReadonlySet<string> {
  const seen = new Map<string, number>();
  return new Set(
    [...withoutCode(markdown).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => {
      const slug = heading
        .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}_ -]/gu, "")
        .replaceAll(" ", "-");
      const count = seen.get(slug) ?? 0;
      seen.set(slug, count + 1);
      return count === 0 ? slug : `${slug}-${count}`;
    }),
  );
}

/** A reason why a link of `file` leads nowhere. */
function faultOf(file: string, target: string): string | undefined {
  const [path = "", anchor] = target.split("#");
  const document = path === "" ? file : join(dirname(file), path);
  if (!existsSync(inRepository(document))) return `${file}: no ${document}`;
  if (anchor === undefined || !document.endsWith(".md")) return undefined;
  return anchorsOf(readText(document)).has(anchor) ? undefined : `${file}: no heading ${anchor} in ${document}`;
}

const linksIn = (markdown: string): string[] =>
  [...withoutCode(markdown).matchAll(/\]\(([^()\s]+)\)/g)]
    .map(([, target]) => target as string)
    .filter((target) => !/^[a-z]+:/.test(target));

test("every relative link of a document leads to a file and a heading", () => {
  const documents = [...ROOT_DOCUMENTS, ...documentsIn("docs"), ...documentsIn("test/bench/results")];
  const links = documents.flatMap((file) => linksIn(readText(file)).map((target) => ({ file, target })));
  expect(links.length).toBeGreaterThan(150);
  expect(links.flatMap(({ file, target }) => faultOf(file, target) ?? [])).toEqual([]);
});

test("every document and heading that a file of the chart names is there", () => {
  const named = chartFiles().flatMap((file) =>
    [...readText(file).matchAll(/\bdocs\/[\w/-]+\.md(?:#[\w-]+)?/g)].map(([target]) => ({ file, target })),
  );
  expect(named.length).toBeGreaterThan(30);
  expect(named.flatMap(({ target }) => faultOf("README.md", target) ?? [])).toEqual([]);
});

test("a link to a missing file or heading is found", () => {
  expect(faultOf("README.md", "docs/nowhere.md")).toBe("README.md: no docs/nowhere.md");
  expect(faultOf("docs/slo.md", "procedures.md#nothing")).toBe("docs/slo.md: no heading nothing in docs/procedures.md");
  expect(faultOf("docs/slo.md", "procedures.md#big-authors")).toBeUndefined();
});

test("README.md lists every document under who reads it", () => {
  const [, index = ""] = readText("README.md").split("\n## Documents\n");
  expect([...index.matchAll(/^\*\*(To \w+) it\*\*/gm)].map(([, reader]) => reader)).toEqual([
    "To use",
    "To operate",
    "To change",
  ]);
  const listed = linksIn(index);
  // Decisions have an index of their own, and the tests a list of helpers.
  const documents = [...ROOT_DOCUMENTS, ...documentsIn("docs")].filter(
    (file) => !/^README\.md$|^docs\/decisions\/\d|^test\//.test(file),
  );
  expect(documents.filter((file) => !listed.includes(file))).toEqual([]);
});

test("the table of README.md names every folder of src once", () => {
  const [, table = ""] = readText("README.md").split("\n## Where things are\n");
  const [rows = ""] = table.split("\n## ");
  const named = [...rows.matchAll(/^\| (`[^|]+`) \|/gm)].flatMap(([, cell = ""]) =>
    cell.replaceAll("`", "").split(", "),
  );
  const folders = readdirSync(inRepository("src"), { withFileTypes: true }).filter(
    (entry) => entry.isDirectory() && entry.name !== "gen",
  );
  expect(named.toSorted()).toEqual(folders.map(({ name }) => name).toSorted());
});

test("the repository and the image hold the license that package.json names", () => {
  const { license } = JSON.parse(readText("package.json")) as { license: string };
  const [, name, version] = /^\s+(\w+) License\s+Version ([\d.]+),/.exec(readText("LICENSE")) ?? [];
  expect(`${name}-${version}`).toBe(license);
  expect(readText("Dockerfile")).toMatch(/^COPY .*\bLICENSE\b/m);
});
