/** Times in ms. */
export type Summary = {
  readonly n: number;
  readonly mean: number;
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
};

/** Sums up times in ms. */
export function summarise(times: readonly number[]): Summary {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return {
    n: sorted.length,
    mean: sorted.reduce((sum, time) => sum + time, 0) / sorted.length,
    p50: at(0.5),
    p95: at(0.95),
    p99: at(0.99),
  };
}

/** Times `count` pieces of work, one after the other, after a tenth of them unmeasured. */
export async function timed(count: number, work: (n: number) => Promise<unknown>): Promise<Summary> {
  const warm = Math.ceil(count / 10);
  const times: number[] = [];
  for (let n = 0; n < count + warm; n++) {
    const started = performance.now();
    await work(n);
    if (n >= warm) times.push(performance.now() - started);
  }
  return summarise(times);
}

/** One line of the report. */
export type Line = { readonly what: string; readonly value: string; readonly ratio?: string };

/** `1.23 ms mean, 2.34 ms p95`. */
export const inWords = ({ mean, p95 }: Summary): string => `${mean.toFixed(2)} ms mean, ${p95.toFixed(2)} ms p95`;

/** How many times the ceiling's mean. */
export const against = (summary: Summary, ceiling: Summary): string => `${(summary.mean / ceiling.mean).toFixed(1)} x`;

/** Fails the benchmark where what it did is not what it was to do. */
export function check(fact: boolean, what: string): void {
  if (!fact) throw new Error(`the benchmark's result is wrong: ${what}`);
}

/** Prints a table in Markdown. */
export function print(title: string, lines: readonly Line[]): void {
  console.log(`\n${title}\n`);
  console.log("| What | Measured | Against its ceiling |\n| --- | --- | --- |");
  for (const { what, value, ratio = "" } of lines) console.log(`| ${what} | ${value} | ${ratio} |`);
}
