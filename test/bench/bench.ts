import { existsSync, readdirSync } from "node:fs";
import { parseArgs } from "node:util";
import { Bench, type Run } from "./support/bench.js";
import { render, reportOf, sectionOf, store } from "./support/report.js";
import { PARAMETERS, type Parameters } from "./support/result.js";

const FOLDER = import.meta.dirname;
const OWN = "bench";
/** Instead of a name: writes the page and the chart again from the stored figures. */
const REPORT = "report";
const PROFILE = "profile";

/** A benchmark is a file beside this one that exports `run`. */
const known = readdirSync(FOLDER)
  .filter((file) => file.endsWith(".ts"))
  .map((file) => file.slice(0, -".ts".length))
  .filter((name) => name !== OWN);

const { names, parameters, profile } = readArguments();
/** Figures are stored that were measured with the sizes a benchmark has by itself, and without a profiler. */
const isStored = Object.keys(parameters).length === 0 && profile === undefined;
const failed: string[] = [];
for (const name of names) await runOne(name);
if (isStored) render();
if (failed.length > 0) console.error(`failed: ${failed.join(", ")}`);
process.exit(failed.length > 0 ? 1 : 0);

interface Arguments {
  readonly names: readonly string[];
  readonly parameters: Parameters;
  readonly profile: string | undefined;
}

function readArguments(): Arguments {
  try {
    const options = Object.fromEntries([...PARAMETERS, PROFILE].map((name) => [name, { type: "string" }] as const));
    const { values: given, positionals } = parseArgs({ options, allowPositionals: true });
    const { [PROFILE]: profile, ...values } = given;
    const wanted = positionals.filter((name) => name !== REPORT);
    if (wanted.some((name) => !existsSync(`${FOLDER}/${name}.ts`) || name === OWN)) throw new Error("no such name");
    const numbers = Object.entries(values).map(([name, text]) => [name, Number(text)] as const);
    if (numbers.some(([, value]) => !Number.isInteger(value) || value < 1)) throw new Error("not a whole number");
    return { names: positionals.length > 0 ? wanted : known, parameters: Object.fromEntries(numbers), profile };
  } catch (error) {
    const options = PARAMETERS.map((name) => `[--${name} N]`).join(" ");
    const names = [...known, REPORT].join("|");
    console.error(`${String(error)}\nusage: npm run bench -- [${names}]... ${options} [--${PROFILE} FOLDER]`);
    process.exit(2);
  }
}

async function runOne(name: string): Promise<void> {
  const { run } = (await import(`./${name}.ts`)) as { run: Run };
  const bench = new Bench(profile);
  console.log(`\n${name} ...`);
  try {
    const report = reportOf(await run(parameters, bench), { name, versions: bench.versions, parameters });
    if (isStored) store(report);
    console.log(sectionOf(report));
  } catch (error) {
    console.error(error);
    failed.push(name);
  } finally {
    await bench.close();
  }
}
