import { readFileSync } from "node:fs";

/** Times in ms. */
export type Summary = Readonly<Record<"n" | "mean" | "p50" | "p95" | "p99" | "max", number>>;

/** Sums up times in ms. */
export function summarise(times: readonly number[]): Summary {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (share: number): number => sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
  return {
    n: sorted.length,
    mean: sorted.reduce((sum, time) => sum + time, 0) / sorted.length,
    ...{ p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1) },
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

/** Seconds the work took, and the CPU time of the named processes for each of its units, in µs. */
export async function measured<T>(
  of: { readonly processes: Readonly<Record<string, number>>; readonly units: number },
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly seconds: number; readonly cpu: Record<string, number> }> {
  const before = Object.values(of.processes).map(cpuSeconds);
  const started = performance.now();
  const result = await work();
  const seconds = (performance.now() - started) / 1_000;
  const names = Object.entries(of.processes);
  const spent = names.map(([name, pid], at) => [name, cpuSeconds(pid) - (before[at] as number)] as const);
  const cpu = Object.fromEntries(spent.map(([name, used]) => [name, (1e6 * used) / of.units]));
  return { result, seconds, cpu };
}

const USER_HZ = 100;

/** User and system time of a process so far, in seconds, as Linux counts it. */
export function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) / USER_HZ;
}

/** Measures the peer before and after the work, since the load of a machine changes; yields its mean. */
export async function between<T>(peer: () => Promise<number>, work: () => Promise<T>): Promise<[number, T]> {
  const before = await peer();
  const result = await work();
  return [(before + (await peer())) / 2, result];
}
