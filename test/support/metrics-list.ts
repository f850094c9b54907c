import { readFileSync } from "node:fs";

/** A metric as docs/metrics.md lists it. */
export interface Listed {
  readonly name: string;
  readonly type: string;
  readonly labels: readonly string[];
  readonly meaning: string;
}

/** The rows of docs/metrics.md. */
export function readMetricsList(): Listed[] {
  const rows = readFileSync("docs/metrics.md", "utf8").matchAll(/^\| `(\w+)(?:\{([\w,]+)\})?` \| (\w+) \| (.*) \|$/gm);
  return [...rows].map(([, name = "", labels, type = "", meaning = ""]) => ({
    name,
    type,
    labels: labels?.split(",") ?? [],
    meaning,
  }));
}
