import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";

const FOLDER = "docs/decisions";

test("the list of decisions names each record with its title", () => {
  const records = readdirSync(FOLDER).filter((file) => /^\d{4}-.*\.md$/.test(file));
  const wanted = records.map((file) => {
    const [, title] = /^# (.+)$/m.exec(readFileSync(`${FOLDER}/${file}`, "utf8")) ?? [];
    return `[${title}](${file})`;
  });
  const rows = readFileSync(`${FOLDER}/README.md`, "utf8").matchAll(/^- (\[.+\]\(.+\))$/gm);
  expect([...rows].map(([, record = ""]) => record).toSorted()).toEqual(wanted.toSorted());
});
