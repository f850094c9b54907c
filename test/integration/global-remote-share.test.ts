import { beforeEach, expect, test } from "@jest/globals";
import fc from "fast-check";
import { compareEntries, type TimelineEntry } from "../../src/contracts/timelines.js";
import { silent } from "../../src/kernel/logger.js";
import { createRebuild, snapshotOf } from "../../src/reads/rebuild.js";
import type { Snapshot } from "../../src/state/entries/store.redis.js";
import { createFences } from "../../src/state/fences/fences.js";
import { GLOBAL_KEY, REMOTE_KEY } from "../../src/state/keys.js";
import { historyOf, rebuildQueue } from "../support/memory-upstreams.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { held } from "../support/timeline-keys.js";

const redis = redisOfFile();
beforeEach(() => redis.raw.flushall());

interface Bounds {
  readonly cap: number;
  readonly remoteCap: number;
}

type Step =
  | { readonly kind: "local" | "remote"; readonly times: readonly number[] }
  | { readonly kind: "again"; readonly which: number; readonly time: number }
  | { readonly kind: "delete"; readonly which: number }
  | { readonly kind: "rebuild"; readonly meanwhile: readonly number[] };

const time = fc.integer({ min: 0, max: 40 });
const times = fc.array(time, { minLength: 1, maxLength: 6 });
const which = fc.nat(1_000);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constantFrom("local", "remote"), times }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("remote" as const), times }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("again" as const), which, time }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("delete" as const), which }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("rebuild" as const), meanwhile: fc.array(time, { maxLength: 3 }) }),
  },
);
const bounds: fc.Arbitrary<Bounds> = fc
  .record({ cap: fc.integer({ min: 2, max: 24 }), share: fc.double({ min: 0.1, max: 0.95, noNaN: true }) })
  .map(({ cap, share }) => ({ cap, remoteCap: Math.max(1, Math.floor(cap * share)) }));

/** A model of global: it has all local and all remote drops above a floor of each; a floor rises where drops are cut off. */
class Model {
  readonly all = new Map<string, TimelineEntry>();
  held = new Map<string, TimelineEntry>();
  floor = 0;
  remoteFloor = 0;

  constructor(private readonly bounds: Bounds) {}

  /** The entries are all local or all remote. */
  add(entries: readonly TimelineEntry[]): void {
    for (const entry of entries) this.#keep(this.all, entry);
    const before = this.held.size;
    for (const entry of entries) if (this.#isKnown(entry)) this.#keep(this.held, entry);
    if (this.held.size === before) return;
    const { cap, remoteCap } = this.bounds;
    const remote = this.ordered().filter(({ remote: is }) => is);
    if (entries[0]?.remote && remote.length > remoteCap)
      this.remoteFloor = this.#cut(remote, Math.ceil((remoteCap * Math.ceil(cap * 0.95)) / cap), this.remoteFloor);
    if (this.held.size > cap) this.floor = this.#cut(this.ordered(), Math.ceil(cap * 0.95), this.floor);
  }

  remove(drop: string): void {
    this.all.delete(drop);
    this.held.delete(drop);
  }

  /** Takes the newest drops of the log, and no more remote ones than their share. */
  snapshot(): Snapshot {
    const { cap, remoteCap } = this.bounds;
    const newest = [...this.all.values()].sort((a, b) => compareEntries(b, a));
    const remote = newest.filter(({ remote: is }) => is);
    const over = new Set(remote.slice(remoteCap));
    const remoteFloor = over.size > 0 ? Math.max(1, remote[remoteCap]?.score ?? 0) : 0;
    const shown = newest.filter((entry) => !over.has(entry));
    return { ...snapshotOf(shown, cap, 0), remoteFloor };
  }

  rebuilt({ entries, floor, remoteFloor = 0 }: Snapshot, meanwhile: readonly TimelineEntry[]): void {
    this.held = new Map();
    for (const entry of [...entries, ...meanwhile])
      if (floor === 0 || entry.score > floor) this.#keep(this.held, entry);
    [this.floor, this.remoteFloor] = [floor, remoteFloor];
    if (this.held.size > this.bounds.cap) this.floor = this.#cut(this.ordered(), this.bounds.cap, floor);
  }

  /** Returns the entries, the oldest first. */
  ordered(): TimelineEntry[] {
    return [...this.held.values()].sort(compareEntries);
  }

  /** Returns the drops above the floors, which a reader must see. */
  promised(): string[] {
    return [...this.all.values()].filter((entry) => this.#isKnown(entry)).map(({ drop }) => drop);
  }

  #isKnown({ score, remote }: TimelineEntry): boolean {
    const isAbove = (floor: number): boolean => floor === 0 || score > floor;
    return isAbove(this.floor) && (!remote || isAbove(this.remoteFloor));
  }

  #keep(map: Map<string, TimelineEntry>, entry: TimelineEntry): void {
    map.set(entry.drop, { ...entry, score: Math.min(entry.score, map.get(entry.drop)?.score ?? entry.score) });
  }

  #cut(oldestFirst: readonly TimelineEntry[], keep: number, floor: number): number {
    const cut = oldestFirst.slice(0, oldestFirst.length - keep);
    for (const { drop } of cut) this.held.delete(drop);
    return Math.max(floor, cut.at(-1)?.score ?? 0, 1);
  }
}

function scene(of: Bounds) {
  const { store, writer, hidden, fenceStore } = adaptersOn(redis.scripts, {
    maxEntries: of.cap,
    remoteCap: of.remoteCap,
  });
  const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
  const rebuild = createRebuild({
    ...{ store, fences, fillHidden: hidden.fill, rebuildQueue },
    ...{ log: silent, observe: () => undefined },
  });
  const model = new Model(of);
  let ids = 0;
  const entriesOf = (kind: "local" | "remote", at: readonly number[]): TimelineEntry[] =>
    at.map((score) => ({ drop: `${kind}-${ids++}`, score, ...(kind === "remote" ? { remote: true as const } : {}) }));
  const write = (entries: readonly TimelineEntry[]) =>
    writer.addShared(
      entries.map((entry) => ({
        timelines: entry.remote ? ["global"] : ["local", "global"],
        entry: { ...entry, by: { author: "ada" } },
      })),
    );
  const one = (at: number): TimelineEntry | undefined => [...model.all.values()][at % Math.max(1, model.all.size)];
  const rebuildWith = async (meanwhile: readonly TimelineEntry[]): Promise<void> => {
    let rounds = 0;
    let taken = model.snapshot();
    await rebuild(
      GLOBAL_KEY,
      async () => {
        taken = model.snapshot();
        if (rounds++ > 0) return taken;
        await write(meanwhile);
        for (const entry of meanwhile) model.all.set(entry.drop, entry);
        return taken;
      },
      { afresh: true },
    );
    // If drops exceed the cap while the timeline is rebuilt, the rebuild starts over.
    model.rebuilt(taken, rounds === 1 ? meanwhile : []);
  };
  const take = async (next: Step): Promise<void> => {
    if (next.kind === "rebuild") return rebuildWith(entriesOf("remote", next.meanwhile));
    if (next.kind === "delete" || next.kind === "again") {
      const entry = one(next.which);
      if (!entry) return;
      if (next.kind === "delete") {
        await writer.removeShared([entry.drop]);
        return model.remove(entry.drop);
      }
      const again = { ...entry, score: next.time };
      await write([again]);
      return model.add([again]);
    }
    const entries = entriesOf(next.kind, next.times);
    await write(entries);
    model.add(entries);
  };
  return { model, store, take };
}

/** Reads all pages of global, the newest first, and returns the drops above the floor. */
async function paged(store: ReturnType<typeof scene>["store"], count: number): Promise<string[]> {
  const drops: string[] = [];
  let from: TimelineEntry | undefined;
  for (;;) {
    const { entries } = await store.read({ key: GLOBAL_KEY, direction: "older", from, count });
    drops.push(...entries.map(({ drop }) => drop));
    from = entries.at(-1);
    if (!from) return drops;
  }
}

// Invariants 5 and 6.
test("global holds what the model holds, and all above its floors, after any drops, deletions and rebuilds", async () => {
  await fc.assert(
    fc.asyncProperty(bounds, fc.array(step, { minLength: 1, maxLength: 30 }), async (of, steps) => {
      await redis.raw.flushall();
      await redis.raw.zadd(GLOBAL_KEY, 0, "~floor");
      const { model, store, take } = scene(of);
      let before = 0;
      for (const next of steps) {
        await take(next);
        const { entries, floor } = await held(redis.raw, GLOBAL_KEY);
        const ordered = model.ordered().toReversed();
        expect({ floor, entries }).toEqual({
          floor: model.floor,
          entries: ordered.map(({ drop, score }) => [drop, score]),
        });
        expect(Number(await redis.raw.zscore(REMOTE_KEY, "~floor"))).toBe(model.remoteFloor);
        expect([...model.held.keys()]).toEqual(expect.arrayContaining(model.promised()));
        const remote = ordered.filter(({ remote: is }) => is).length;
        // Remote drops that come during a rebuild may stay until the next remote drop comes.
        const more = next.kind === "rebuild" ? of.remoteCap + next.meanwhile.length : before;
        expect(remote).toBeLessThanOrEqual(Math.max(of.remoteCap, more));
        before = remote;
        expect(await paged(store, 3)).toEqual(ordered.map(({ drop }) => drop));
      }
    }),
    { numRuns: 60 },
  );
});

test("a flood of remote drops takes no room of local ones", async () => {
  const { model, take } = scene({ cap: 20, remoteCap: 5 });
  await redis.raw.zadd(GLOBAL_KEY, 0, "~floor");
  await take({ kind: "local", times: Array.from({ length: 15 }, (_, at) => at + 1) });
  for (let at = 0; at < 40; at++) await take({ kind: "remote", times: [100 + at] });
  const { entries, floor } = await held(redis.raw, GLOBAL_KEY);
  expect([entries.length, floor]).toEqual([20, 0]);
  expect(entries.filter(([drop]) => drop.startsWith("remote"))).toHaveLength(5);
  expect(model.remoteFloor).toBe(134);
});

test("rebuilds that never end leave a bounded set of remote drops, and one that ends keeps to the share", async () => {
  const { model, take } = scene({ cap: 20, remoteCap: 5 });
  for (let at = 0; at < 100; at++) {
    await redis.raw.zadd(GLOBAL_KEY, -1 - at, "~floor");
    await take({ kind: "remote", times: [at, at] });
    expect(await redis.raw.zcard(REMOTE_KEY)).toBeLessThanOrEqual(41);
  }
  await take({ kind: "rebuild", meanwhile: [] });
  expect((await held(redis.raw, GLOBAL_KEY)).entries).toHaveLength(5);
  await take({ kind: "remote", times: [200] });
  expect((await held(redis.raw, GLOBAL_KEY)).entries.map(([drop]) => drop)).toEqual(
    model
      .ordered()
      .map(({ drop }) => drop)
      .toReversed(),
  );
  expect(await redis.raw.zcard(REMOTE_KEY)).toBe(6);
});

test("the set of remote drops stays as small as its cap while none of them is held, and while nobody reads global", async () => {
  const { take } = scene({ cap: 20, remoteCap: 5 });
  for (let at = 0; at < 30; at++) await take({ kind: "remote", times: [at] });
  expect(await redis.raw.exists(REMOTE_KEY)).toBe(0);
  await redis.raw.zadd(GLOBAL_KEY, 0, "~floor");
  for (let at = 0; at < 30; at++) {
    await take({ kind: "remote", times: [100 + at] });
    await take({ kind: "delete", which: 1_000_000 });
  }
  expect(await redis.raw.zcard(REMOTE_KEY)).toBeLessThanOrEqual(6);
});
