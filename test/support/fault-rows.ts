import { appendFileSync } from "node:fs";
import type { FaultRun, Found } from "./fault-run.js";

/** The reporter prints these rows as a table at the end. */
export function recordRow(fault: string, run: FaultRun, found: Found): void {
  const file = process.env["FAULTS_ROWS"];
  if (file === undefined) return;
  const counts = Object.fromEntries(Object.entries(found).map(([name, all]) => [name, all.length]));
  const row = {
    fault,
    events: run.events.length,
    deaths: run.supervisor.deaths,
    recoveredMs: run.recoveredMs,
    ...counts,
  };
  appendFileSync(file, `${JSON.stringify(row)}\n`);
}
