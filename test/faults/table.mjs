import { existsSync, readFileSync } from "node:fs";

const COLUMNS = [
  ["Fault", ({ fault }) => fault],
  ["Events", ({ events }) => events],
  ["Killed", ({ deaths }) => deaths],
  ["Lost", ({ lost, broken }) => lost + broken],
  ["Duplicated", ({ duplicated }) => duplicated],
  ["Resurrected", ({ resurrected }) => resurrected],
  ["Unexpected", ({ unexpected }) => unexpected],
  ["Unfulfilled", ({ unfulfilled }) => unfulfilled],
  ["Recovery", ({ recoveredMs }) => `${(recoveredMs / 1_000).toFixed(1)} s`],
];

/** Prints what the scenarios have noted, as Markdown. */
// oxlint-disable-next-line import/no-default-export -- Jest takes a reporter as the default of its module.
export default class Table {
  onRunComplete() {
    const file = process.env.FAULTS_ROWS;
    if (file === undefined || !existsSync(file)) return;
    const rows = readFileSync(file, "utf8")
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const lines = [COLUMNS.map(([title]) => title), COLUMNS.map(() => "---")];
    for (const row of rows) lines.push(COLUMNS.map(([, cell]) => String(cell(row))));
    console.log(`\n${lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n")}\n`);
  }
}
