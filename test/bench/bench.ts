import { existsSync, readdirSync } from "node:fs";
import { parseArgs } from "node:util";
import { Bench, type Run } from "./support/bench.js";
import { render, reportOf, sectionOf, store } from "./support/report.js";
import { PARAMETERS, type Parameters } from "./support/result.js";

const FOLDER = import.meta.dirname;
const OWN = "bench";
/** Instead of a name: writes the page and the chart again from the stored figures. */
const REPORT = "report";

/** A benchmark is a file beside this one that exports `run`. */
const known = readdirSync(FOLDER)
  .filter((file) => file.endsWith(".ts"))
  .map((file) => file.slice(0, -".ts".length))
  .filter((name) => name !== OWN);

const { names, parameters } = readArguments();
const failed: string[] = [];
for (const name of names) await runOne(name);
render();
if (failed.length > 0) console.error(`failed: ${failed.join(", ")}`);
process.exit(failed.length > 0 ? 1 : 0);

function readArguments(): { names: readonly string[]; parameters: Parameters } {
  try {
    const options = Object.fromEntries(PARAMETERS.map((name) => [name, { type: "string" }] as const));
    const { values, positionals } = parseArgs({ options, allowPositionals: true });
    const wanted = positionals.filter((name) => name !== REPORT);
    if (wanted.some((name) => !existsSync(`${FOLDER}/${name}.ts`) || name === OWN)) throw new Error("no such name");
    const numbers = Object.entries(values).map(([name, text]) => [name, Number(text)] as const);
    if (numbers.some(([, value]) => !Number.isInteger(value) || value < 1)) throw new Error("not a whole number");
    return { names: positionals.length > 0 ? wanted : known, parameters: Object.fromEntries(numbers) };
  } catch (error) {
    const options = PARAMETERS.map((name) => `[--${name} N]`).join(" ");
    console.error(`${String(error)}\nusage: npm run bench -- [${[...known, REPORT].join("|")}]... ${options}`);
    process.exit(2);
  }
}

async function runOne(name: string): Promise<void> {
  const { run } = (await import(`./${name}.ts`)) as { run: Run };
  const bench = new Bench();
  console.log(`\n${name} ...`);
  try {
    const report = reportOf(await run(parameters, bench), { name, versions: bench.versions, parameters });
    store(report);
    console.log(sectionOf(report));
  } catch (error) {
    console.error(error);
    failed.push(name);
  } finally {
    await bench.close();
  }
}
