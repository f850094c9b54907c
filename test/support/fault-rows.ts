import { appendFileSync } from "node:fs";

interface Run {
  readonly events: { readonly length: number };
  readonly supervisor: { readonly deaths: number };
  readonly recoveredMs: number;
}

/** The reporter prints these rows as a table at the end. `found` has the lists of its columns. */
export function recordRow(fault: string, run: Run, found: Readonly<Record<string, readonly unknown[]>>): void {
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
