import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";

const read = (file: string): string => readFileSync(file, "utf8");
const namesIn = (text: string, pattern: RegExp): string[] => [...text.matchAll(pattern)].map(([, name = ""]) => name);

test("a metric that a document names is one of docs/metrics.md or of a recording rule", () => {
  const list = read("docs/metrics.md");
  const listed = namesIn(list, /^\| `(timeline_\w+)/gm);
  const histograms = namesIn(list, /^\| `(timeline_\w+)\S*` \| histogram/gm);
  const rules = readdirSync("charts/avion-timeline/rules").map((file) => read(`charts/avion-timeline/rules/${file}`));
  const known = new Set([
    ...listed,
    ...histograms.flatMap((name) => ["_bucket", "_sum", "_count"].map((end) => name + end)),
    ...rules.flatMap((rule) => namesIn(rule, /record: (timeline_\w+)/g)),
    // A table of PostgreSQL.
    "timeline_analyses",
    // A channel of Redis Pub/Sub.
    "timeline_bridges",
  ]);
  expect(listed.length).toBeGreaterThan(50);
  const documents = [
    "README.md",
    ...readdirSync("docs").flatMap((name) => (name.endsWith(".md") ? [`docs/${name}`] : [])),
  ];
  const unknown = documents.flatMap((file) =>
    namesIn(read(file), /\b(timeline_\w+)/g).flatMap((name) => (known.has(name) ? [] : [`${file}: ${name}`])),
  );
  expect(unknown).toEqual([]);
});
