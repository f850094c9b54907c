import { setTimeout as delay } from "node:timers/promises";
import { afterEach, expect } from "@jest/globals";
import { mapLimited } from "../../src/kernel/concurrency.js";
import { doubledOn, expectPages, missedOn, PAGE, PATIENCE_MS } from "../support/busy-oracle.js";
import { act } from "../support/busy-people.js";
import type { BusyWorld } from "../support/busy-world.js";
import { eventually } from "../support/eventually.js";
import { type Footprint, footprintOf, grownIn } from "../support/footprint.js";
import { oneOf, seeded } from "../support/random.js";
import type { Reader } from "../support/reader.js";
import { faultsOf, Listener, openRehearsal, type Rehearsal } from "../support/rehearsal.js";
import { slowTest } from "../support/suite.js";

const HOMES = Number(process.env["REHEARSAL_HOMES"] ?? 1_000);
const SEED = Number(process.env["REHEARSAL_SEED"] ?? 1);
const PEOPLE = Array.from({ length: HOMES }, (_, number) => `person-${number}`);
/** These only post: whom they follow stays as it was, so that it is known what their streams must send. */
const LISTENERS = PEOPLE.slice(0, 24);
const OTHERS = PEOPLE.slice(LISTENERS.length);
/** Half of all drops are theirs. */
const BUSY = OTHERS.slice(0, 24);
/** The same homes are read again and again. */
const READ = [...LISTENERS.slice(0, 8), ...OTHERS.slice(0, 24)];
/** A soak runs where this is set, for so long. */
const SOAK_MINUTES = Number(process.env["SOAK_MINUTES"] ?? 0);
/** People are busy for this share of the time. */
const SOAK_SHARE = 0.7;
const SAMPLE_MS = 10_000;
/** So much more than in the second third a process may hold in the last one. */
const GROWTH_MAX = 1.1;
const TEST_MS_A_HOME = 60;
/** So many others each follows at first. Each follow asks for drops: many would take longer than all the rest. */
const FOLLOWS = HOMES > 10_000 ? 2 : 8;
const WORKERS = 6;
const READERS = 8;
const AT_ONCE = 16;

const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

const all = <T>(items: readonly T[], work: (item: T) => Promise<unknown>) => mapLimited(items, AT_ONCE, work);

function setOf(sets: Map<string, Set<string>>, key: string): Set<string> {
  const held = sets.get(key) ?? new Set();
  sets.set(key, held);
  return held;
}

async function fill({ world, readers: [reader] }: Rehearsal): Promise<void> {
  await world.followAtRandom(FOLLOWS);
  await all(LISTENERS, (user) => world.follow(user, BUSY[0] as string));
  await all(OTHERS.slice(0, 200), (user) => world.follow(user, BUSY[1] as string));
  await all(PEOPLE.slice(0, 200), (user) => world.post(user));
  await all(PEOPLE, (user) => (reader as Reader).home(user, { limit: PAGE }, 60_000));
}

/** Finds deleted drops that a page shows again after a later page did without them. */
class DeletionWatch {
  readonly found: string[] = [];
  reads = 0;
  readonly #shown = new Map<string, Set<string>>();
  readonly #gone = new Map<string, Set<string>>();

  constructor(private readonly world: BusyWorld) {}

  async read(reader: Reader, user: string): Promise<void> {
    const [shown, gone] = [setOf(this.#shown, user), setOf(this.#gone, user)];
    const due = [...shown].filter((drop) => this.world.deleted.has(drop));
    const goneBefore = new Set(gone);
    const page = await reader.home(user, { limit: PAGE }).catch(() => undefined);
    if (page === undefined) return;
    this.reads++;
    const ids = new Set(page.drop_ids);
    const again = page.drop_ids.filter((drop) => goneBefore.has(drop));
    this.found.push(...again.map((drop) => `${drop} for ${user}${page.degraded ? ", degraded" : ""}`));
    for (const drop of ids) shown.add(drop);
    const last = page.has_more ? this.#timeOf(page.drop_ids.at(-1)) : 0;
    for (const drop of page.degraded ? [] : due) {
      if (ids.has(drop) || this.#timeOf(drop) <= last) continue;
      shown.delete(drop);
      gone.add(drop);
    }
  }

  #timeOf(drop = ""): number {
    return (this.world.drops.get(drop) ?? this.world.deleted.get(drop))?.created_at ?? Number.POSITIVE_INFINITY;
  }
}

/** People do things and read pages until they are stopped. They do so for a `share` of the time, and rest for the others. */
function keepBusy({ world, readers }: Rehearsal, watch: DeletionWatch, seed: number, share = 1): () => Promise<void> {
  let isOver = false;
  const until = async (work: () => Promise<void>): Promise<void> => {
    while (!isOver) {
      const began = performance.now();
      await work();
      if (share < 1) await delay((performance.now() - began) * (1 / share - 1));
    }
  };
  const busy = Array.from({ length: WORKERS }, (_, worker) => {
    const random = seeded(seed + worker + 1);
    const own = OTHERS.filter((_user, place) => place % WORKERS === worker);
    return until(() => act(world, random, { own, busy: BUSY.length / WORKERS }));
  });
  const posting = seeded(seed + WORKERS + 1);
  const listening = until(async () => {
    await world.post(oneOf(posting, LISTENERS));
    await delay(100);
  });
  const reading = Array.from({ length: READERS }, (_, place) => {
    const [random, reader] = [seeded(seed + 100 + place), readers[place % readers.length] as Reader];
    return until(async () => {
      await watch.read(reader, oneOf(random, READ));
      await delay(5);
    });
  });
  return async () => {
    isOver = true;
    await Promise.all([...busy, listening, ...reading]);
  };
}

/** Opens event streams. The function that it returns waits until they have sent all, and resolves to what they sent twice. */
async function listen({ world, gateways }: Rehearsal): Promise<() => Promise<string[]>> {
  const listeners = LISTENERS.map((user) => new Listener(gateways, user));
  closes.push(() => Promise.all(listeners.map((listener) => listener.close())));
  await eventually(() => listeners.every(({ isOpen }) => isOpen), "the streams are open");
  const before = new Set(world.drops.keys());
  return async () => {
    const missed = () => listeners.flatMap((listener) => missedOn(listener, world, before));
    await eventually(() => missed().length === 0 || missed().join(), "the streams have sent everything", PATIENCE_MS);
    return listeners.flatMap(doubledOn);
  };
}

async function rehearse(rehearsal: Rehearsal): Promise<void> {
  const { world, servers, ended, streams } = rehearsal;
  await fill(rehearsal);
  const doubledOnStreams = await listen(rehearsal);
  const watch = new DeletionWatch(world);
  const faults = faultsOf(servers, READ, seeded(SEED));
  let seed = SEED;
  const compareAfter = async (users: readonly string[], ...steps: readonly (() => Promise<void>)[]): Promise<void> => {
    seed += 1_000;
    const calm = keepBusy(rehearsal, watch, seed);
    try {
      for (const step of steps) await step();
    } finally {
      await calm();
    }
    await expectPages(rehearsal, users);
  };
  // Pages are not cached from a failover of Redis until what it may have lost is applied again.
  await compareAfter(READ, faults.onlyMoves, faults.nats);
  await compareAfter(PEOPLE, faults.redis, faults.onlyMoves, faults.postgres);
  await compareAfter(READ, faults.onlyMoves);
  const [doubled, resurrected] = [await doubledOnStreams(), watch.found];
  const found = { doubled, resurrected, ended, deadLetters: await streams.count("DLQ") };
  expect(found).toEqual({ doubled: [], resurrected: [], ended: [], deadLetters: 0 });
  expect(Math.min(faults.moved(), watch.reads, world.deleted.size)).toBeGreaterThan(30);
}

async function soak(rehearsal: Rehearsal): Promise<void> {
  const { world, ended, streams } = rehearsal;
  await fill(rehearsal);
  const doubledOnStreams = await listen(rehearsal);
  const watch = new DeletionWatch(world);
  const calm = keepBusy(rehearsal, watch, SEED, SOAK_SHARE);
  const footprints: Footprint[] = [];
  try {
    while (footprints.length * SAMPLE_MS < SOAK_MINUTES * 60_000) {
      await delay(SAMPLE_MS);
      footprints.push(await footprintOf(rehearsal));
    }
  } finally {
    await calm();
  }
  await expectPages(rehearsal, READ);
  await eventually(async () => (await streams.count("FANOUT")) === 0, "no work is left");
  const [doubled, resurrected] = [await doubledOnStreams(), watch.found];
  const found = { doubled, resurrected, ended, deadLetters: await streams.count("DLQ") };
  expect(found).toEqual({ doubled: [], resurrected: [], ended: [], deadLetters: 0 });
  console.info(`${watch.reads} pages, ${world.drops.size} drops; at the end ${JSON.stringify(footprints.at(-1))}`);
  expect(grownIn(footprints, GROWTH_MAX)).toEqual({});
}

/** Runs the whole service for `work`, whose errors carry the logs of its processes. */
async function run(work: (rehearsal: Rehearsal) => Promise<void>): Promise<void> {
  const rehearsal = await openRehearsal(PEOPLE, seeded(SEED), (close) => closes.push(close));
  await work(rehearsal).catch((error: unknown) => {
    throw rehearsal.explain(error);
  });
}

if (SOAK_MINUTES > 0)
  slowTest(
    `${HOMES} homes under load for ${SOAK_MINUTES} minutes: memory, handles and keys do not grow`,
    () => run(soak),
    600_000 + HOMES * TEST_MS_A_HOME + SOAK_MINUTES * 60_000,
  );

// Invariants 1, 4, 5 and 7.
slowTest(
  `${HOMES} homes on a Redis Cluster, three nats-servers and PostgreSQL, of each of which one fails (seed ${SEED})`,
  () => run(rehearse),
  600_000 + HOMES * TEST_MS_A_HOME,
);
