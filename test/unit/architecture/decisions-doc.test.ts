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

test("the records are numbered from 1 without a gap, in the name of the file and in the title", () => {
  const records = readdirSync(FOLDER).filter((file) => file !== "README.md");
  const titles = records.toSorted().map((file) => readFileSync(`${FOLDER}/${file}`, "utf8").split(" ", 2).join(" "));
  expect(records.toSorted().map((file) => Number(file.slice(0, 4)))).toEqual(records.map((_, index) => index + 1));
  expect(titles).toEqual(records.map((_, index) => `# ${index + 1}.`));
});
