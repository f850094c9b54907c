import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { CAPACITY_PAGE, withTables } from "./capacity-page.js";
import { drawRatios } from "./chart.js";
import { type Parameters, type Result, type Row, ratioOf, targetOf } from "./result.js";

/** One run of a benchmark as it is stored. */
export interface Report extends Result {
  readonly name: string;
  readonly date: string;
  readonly machine: { readonly cores: number; readonly model: string };
  readonly versions: Readonly<Record<string, string>>;
  readonly parameters: Parameters;
}

const FOLDER = "docs/benchmarks";

const HEAD = `# Benchmarks

\`npm run bench\` runs them all, \`npm run bench -- NAME\` one, and writes this page, its chart and a JSON file a benchmark.
Each starts the servers it needs and checks its result in the same run: every entry is there once, every event came in
order. Each figure is compared with a ceiling or a peer **of the same run** on the same machine. Ratios compare
roughly between machines; absolute figures do not. CPU is user and system time a unit of work, by process; it varies
less than a rate. [performance.md](../performance.md) explains what limits each figure.

![ratios to their targets](ratios.svg)
`;

export function reportOf(
  result: Result,
  of: { readonly name: string; readonly versions: Readonly<Record<string, string>>; readonly parameters: Parameters },
): Report {
  const { name, versions, parameters } = of;
  const machine = { cores: cpus().length, model: cpus()[0]?.model.trim() ?? "unknown" };
  return { name, date: new Date().toISOString().slice(0, 16), machine, versions, parameters, ...result };
}

export function store(report: Report): void {
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(join(FOLDER, `${report.name}.json`), `${JSON.stringify(report, undefined, 2)}\n`);
}

/** Writes the page, the chart and the tables of docs/capacity.md anew from all stored runs. */
export function render(): void {
  const names = readdirSync(FOLDER).filter((file) => file.endsWith(".json"));
  const reports = names.sort().map((file) => JSON.parse(readFileSync(join(FOLDER, file), "utf8")) as Report);
  writeFileSync(join(FOLDER, "README.md"), [HEAD, ...reports.map(sectionOf)].join("\n"));
  writeFileSync(join(FOLDER, "ratios.svg"), drawRatios(reports));
  writeFileSync(CAPACITY_PAGE, withTables(readFileSync(CAPACITY_PAGE, "utf8")));
}

/** A section of the page, and what a run prints. */
export function sectionOf({ name, about, date, machine, versions, parameters, rows }: Report): string {
  const with_ = Object.entries(versions).map((entry) => entry.join(" "));
  const set = Object.entries(parameters).map(([key, value]) => `--${key} ${value}`);
  return [
    `## ${name}\n`,
    `${about}\n`,
    `${[`${machine.cores} x ${machine.model}`, ...with_, `${date.replace("T", " ")} UTC`, ...set].join(", ")}\n`,
    "| Case | Measured | Ceiling or peer | Ratio | Target | CPU, µs |",
    "| --- | --- | --- | --- | --- | --- |",
    ...rows.map((row) => `| ${cellsOf(row).join(" | ")} |`),
    "",
  ].join("\n");
}

function cellsOf(row: Row): string[] {
  const { name, value, unit, peer, cpu = {}, note } = row;
  const ratio = ratioOf(row);
  const measured = [`${inShort(value)} ${unit}`, ...(note === undefined ? [] : [note])].join("; ");
  return [
    name,
    measured,
    peer === undefined ? "" : `${inShort(peer.value)} ${unit}: ${peer.name}`,
    ratio === undefined ? "" : inShort(ratio),
    targetOf(row),
    Object.entries(cpu)
      .map(([process, used]) => `${process} ${inShort(used)}`)
      .join(", "),
  ];
}

/** Three digits, more before the point. */
const inShort = (value: number): string =>
  Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
