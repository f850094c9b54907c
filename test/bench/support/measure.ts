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

const WRITES_A_TURN = 100;
const WARM_TURNS = 4;

/** Mean times in ms of kinds of work that take turns, so that the load of the machine and warm code are the same for all. */
export async function inTurns<Name extends string>(
  count: number,
  works: Readonly<Record<Name, (n: number) => Promise<unknown>>>,
): Promise<{ readonly means: Record<Name, number>; readonly each: number }> {
  const names = Object.keys(works) as Name[];
  const means = Object.fromEntries(names.map((name) => [name, 0])) as Record<Name, number>;
  const turns = Math.ceil(count / WRITES_A_TURN);
  for (let turn = -WARM_TURNS; turn < turns; turn++) {
    for (const name of names) {
      const started = performance.now();
      for (let n = 0; n < WRITES_A_TURN; n++) await works[name](n);
      if (turn >= 0) means[name] += (performance.now() - started) / (turns * WRITES_A_TURN);
    }
  }
  return { means, each: (turns + WARM_TURNS) * WRITES_A_TURN };
}

/** µs of a unit of work, by process. */
export type Cpu = Readonly<Record<string, number>>;

export const TURNS = 11;
export const MIDDLE_TURNS = 5;

/**
 * Kinds of work take `turns`, and one before them that is not measured. Yields for each the mean of its middle turns: a median would be
 * as coarse as the steps in which CPU time is counted.
 */
export async function cpuInTurns<Name extends string>(
  works: Readonly<Record<Name, () => Promise<Cpu>>>,
  turns = TURNS,
): Promise<Record<Name, Cpu>> {
  const names = Object.keys(works) as Name[];
  const seen = Object.fromEntries(names.map((name) => [name, []])) as unknown as Record<Name, Cpu[]>;
  for (let turn = 0; turn <= turns; turn++)
    for (const name of turn % 2 === 0 ? names : names.toReversed()) seen[name].push(await works[name]());
  const middleOf = (all: readonly Cpu[]): Cpu => {
    const processes = Object.keys(all[0] ?? {});
    return Object.fromEntries(processes.map((one) => [one, middle(all.slice(1).map((cpu) => cpu[one] as number))]));
  };
  return Object.fromEntries(names.map((name) => [name, middleOf(seen[name])])) as Record<Name, Cpu>;
}

function middle(values: readonly number[]): number {
  const from = Math.max(0, Math.floor((values.length - MIDDLE_TURNS) / 2));
  const some = values.toSorted((a, b) => a - b).slice(from, from + MIDDLE_TURNS);
  return some.reduce((sum, value) => sum + value, 0) / some.length;
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
