import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { CAPACITY_PAGE, withTables } from "./capacity-page.js";
import { drawRatios } from "./chart.js";
import { type Parameters, type Result, type Row, ratioOf, targetOf } from "./result.js";
import { plain, tableOf } from "./tables.js";

/** One run of a benchmark as it is stored. */
export interface Report extends Result {
  readonly name: string;
  readonly date: string;
  readonly machine: { readonly cores: number; readonly model: string };
  readonly versions: Readonly<Record<string, string>>;
  readonly parameters: Parameters;
}

const FOLDER = "test/bench/results";

const HEAD = `# Benchmarks

\`npm run bench\` runs all benchmarks and writes this page, its chart and a JSON file for each; \`npm run bench -- NAME\` runs one,
\`npm run bench -- report\` only writes the page again. A benchmark starts its servers, checks that each entry is there once and each event
came in order, and measures a ceiling or a peer in the same run. Compare ratios between machines, not absolute figures. Targets are
in parentheses. The head of a table names the peer of the rows that name none. CPU is user and system time in µs a unit of work.
[performance.md](../../../docs/performance.md) defines *bare* and *bound*, and explains what limits each figure.

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
  const all = sharedSettings(reports);
  const head = [HEAD, `All runs: ${[...all].join(", ")}.\n`];
  writeFileSync(join(FOLDER, "README.md"), [...head, ...reports.map((one) => sectionOf(one, all))].join("\n"));
  writeFileSync(join(FOLDER, "ratios.svg"), drawRatios(reports));
  writeFileSync(CAPACITY_PAGE, withTables(readFileSync(CAPACITY_PAGE, "utf8")));
}

/** The machine and the versions of a run, by what has them. */
const settingsOf = ({ machine, versions }: Report): [string, string][] => [
  ["machine", `${machine.cores} x ${machine.model}`],
  ...Object.entries(versions).map(([name, version]): [string, string] => [name, `${name} ${version}`]),
];

/** Machine and versions that no run contradicts. */
function sharedSettings(reports: readonly Report[]): ReadonlySet<string> {
  const found = new Map<string, Set<string>>();
  for (const [name, setting] of reports.flatMap(settingsOf))
    found.set(name, (found.get(name) ?? new Set()).add(setting));
  return new Set([...found.values()].flatMap((settings) => (settings.size === 1 ? [...settings] : [])));
}

/** A section of the page, and what a run prints; `told`: settings that the page has named. */
export function sectionOf(report: Report, told: ReadonlySet<string> = new Set()): string {
  const { name, about, date, parameters, rows } = report;
  const own = settingsOf(report).flatMap(([, setting]) => (told.has(setting) ? [] : [setting]));
  const set = Object.entries(parameters).map(([key, value]) => `--${key} ${value}`);
  const at = `${date.replace("T", " ")} UTC`;
  return [`## ${name}\n`, `${about}\n`, `${[at, ...own, ...set].join(", ")}\n`, tableOfRows(rows), ""].join("\n");
}

/** Without the columns that are empty in all rows. The head names the peer of most rows. */
function tableOfRows(rows: readonly Row[]): string {
  const usual = usualPeer(rows);
  const cells = rows.map((row) => cellsOf(row, usual));
  const head = ["Case", "Measured", `Ceiling or peer: ${usual}`, "Ratio", "CPU"];
  const kept = head.flatMap((_, at) => (cells.some((row) => row[at] !== "") ? [at] : []));
  const pick = (row: readonly string[]): string[] => kept.map((at) => row[at] as string);
  return tableOf(pick(head), cells.map(pick));
}

function usualPeer(rows: readonly Row[]): string | undefined {
  const names = rows.flatMap(({ peer }) => peer?.name ?? []);
  const count = (name: string): number => names.filter((one) => one === name).length;
  return [...new Set(names)].sort((a, b) => count(b) - count(a))[0];
}

function cellsOf(row: Row, usual: string | undefined): string[] {
  const { name, value, unit, peer, target, cpu = {}, note } = row;
  const ratio = ratioOf(row);
  const aim = target === undefined ? "" : ` (${targetOf(row)})`;
  const [ofValue, ofRatio] = target?.of === "value" ? [aim, ""] : ["", aim];
  const measured = [`${plain(value)} ${unit}${ofValue}`, ...(note === undefined ? [] : [note])].join("; ");
  return [
    name,
    measured,
    peer === undefined ? "" : [plain(peer.value), ...(peer.name === usual ? [] : [peer.name])].join(": "),
    ratio === undefined ? "" : `${plain(ratio)}${ofRatio}`,
    Object.entries(cpu)
      .map(([process, used]) => `${process}: ${plain(used)}`)
      .join(", "),
  ];
}
