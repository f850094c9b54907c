import { createCross } from "../../src/fanout/crossing.js";
import { silent } from "../../src/kernel/logger.js";
import type { Published, PullState } from "../../src/state/big-authors/pulled.js";
import { type AuthorRegistry, createAuthorRegistry } from "../../src/state/big-authors/registry.js";
import { createPullStore } from "../../src/state/big-authors/store.redis.js";
import type { StandingChange, Standings, VeilUsers } from "../../src/state/index.js";
import { eventually } from "./eventually.js";
import type { FanoutBench } from "./fanout.js";
import { clockOn, type RedisBench } from "./redis.js";

/** The clock of Redis is estimated: a state that has just begun may seem to begin a moment from now. */
const NO_GRACE_MS = -60_000;

/** The registry of a process; without a grace its states need not last before the work that relies on them. */
export const openRegistry = (
  { scripts }: RedisBench,
  pull: number,
  { tier = Number.POSITIVE_INFINITY, pressure = Number.POSITIVE_INFINITY, graceMs = NO_GRACE_MS } = {},
): AuthorRegistry =>
  createAuthorRegistry({
    store: createPullStore(scripts, clockOn(scripts)),
    thresholds: { tier, pull, pressure },
    graceMs,
  });

/** An author with so many followers has published a drop. */
export const published = (author: string, followers: number, drop = "d1", at = Date.now()): readonly Published[] => [
  { author, followers, drop, at },
];

/** Takes every author one step further. */
export async function step(bench: FanoutBench, registry: AuthorRegistry): Promise<void> {
  const readBacklogStart = async () => Math.min(...bench.jobs.map(({ admitted_at }) => admitted_at));
  const cross = createCross({ ...bench.deps, authorStates: registry, readBacklogStart });
  for (const due of await registry.due()) await cross(due, new AbortController().signal);
}

export const stateOf = async (registry: AuthorRegistry, author: string): Promise<PullState | undefined> =>
  (await registry.refresh()).get(author)?.state;

/** Lets the first of some processes fill the standings, and waits until all of them have read that. */
export async function fillStandings(
  processes: readonly [Standings, ...Standings[]],
  changes: readonly StandingChange[],
  veil: VeilUsers,
): Promise<void> {
  const read = async function* () {
    yield changes;
  };
  const fill = processes[0].startFill(silent, read, veil);
  await eventually(async () => {
    await Promise.all(processes.map(({ refresh }) => refresh()));
    return !processes.some(({ isLost }) => isLost);
  }, "all standings are filled");
  await fill.close();
}
