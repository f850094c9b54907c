import { test } from "@jest/globals";
import type { TimelineEvent as Admitted } from "../../src/contracts/events.js";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { type AdmittedEdge, createApplyEdges } from "../../src/fanout/graph.js";
import { chunked, mapLimited } from "../../src/kernel/concurrency.js";
import { contextWith } from "../support/deliveries.js";
import { failing } from "../support/failing.js";
import { type FanoutBench, handle, insisting, logged, type MemoryLog, openFanout, work } from "../support/fanout.js";
import { expectTimelines } from "../support/oracle.js";
import { below, duplicatedAndShuffled, oneOf, type Random, seeded } from "../support/random.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, followed, received, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { World } from "../support/world.js";

const redis = redisOfFile();

const USERS = ["ada", "bob", "eve", "rik é", "zoë"] as const;
const NOW = Date.now();

/** A random history and the world as it is after all of it. */
function historyIn(world: World, random: Random, length: number): TimelineEvent[] {
  const history: TimelineEvent[] = [];
  const alive: { id: string; author: string | undefined }[] = [];
  for (let index = 0; index < length; index++) {
    const [author, other] = [oneOf(random, USERS), oneOf(random, USERS)];
    const kind = below(random, 10);
    const created_at = NOW - 1_000 + below(random, 30);
    const drop_id = `${oneOf(random, ["d", "é", "😀"])}${index}`;
    if (kind < 4) {
      const visibility = oneOf(random, ["public", "unlisted", "followers", "direct"] as const);
      const recipients = visibility === "direct" ? [oneOf(random, USERS), oneOf(random, USERS)] : [];
      world.post({ drop_id, user_id: author, created_at, visibility, recipients });
      history.push(created({ drop_id, user_id: author, visibility, created_at, recipients }));
      alive.push({ id: drop_id, author });
    } else if (kind === 4) {
      world.post({ drop_id, user_id: author, created_at, remote: true });
      history.push(received({ drop_id, user_id: author, created_at }));
      alive.push({ id: drop_id, author });
    } else if (kind < 7 && alive.length > 0) {
      const [gone] = alive.splice(below(random, alive.length), 1);
      if (!gone) continue;
      world.remove(gone.id);
      history.push(deleted(gone.id, gone.author));
    } else if (author !== other) {
      const stands = world.follows(author, other);
      const version = stands ? world.unfollow(author, other) : world.follow(author, other);
      history.push(stands ? unfollowed(author, other, version) : followed(author, other, version));
    }
  }
  return history;
}

const admittedOf = (history: readonly TimelineEvent[]): MemoryLog =>
  history.map(({ channel, payload }) => ({ event: { name: channel, payload } as Admitted, time: NOW }));

async function run(
  processes: readonly FanoutBench[],
  history: readonly TimelineEvent[],
  random: Random,
): Promise<void> {
  await mapLimited(history, 12, (event) => handle(oneOf(random, processes), event, NOW));
  await Promise.all(processes.map(work));
}

/** Handles the events as a batch, and those it leaves one by one. */
async function together(bench: FanoutBench, events: readonly TimelineEvent[]): Promise<void> {
  const deliveries = events.map((event) => logged(event, NOW));
  const { drops } = bench.handlers;
  const left = await drops.batch(deliveries, contextWith()).catch(() => deliveries);
  for (const delivery of left) await insisting(() => drops.single(delivery, contextWith()));
}

// Invariant 3.
test.each(Array.from({ length: 25 }, (_, seed) => seed + 1))(
  "history %i: shuffled, duplicated and handled by two processes at once, it ends in the state of the model",
  async (seed) => {
    const random = seeded(seed);
    const world = new World();
    const history = historyIn(world, random, 60);
    const pageSize = oneOf(random, [1, 2, 100]);
    const log = admittedOf(history);
    const processes = [openFanout(redis, world, { log, pageSize }), openFanout(redis, world, { log, pageSize })];
    await run(processes, duplicatedAndShuffled(random, history), random);
    await expectTimelines(redis.raw, USERS, history);
  },
);

// Invariant 3.
test.each(Array.from({ length: 12 }, (_, seed) => seed + 101))(
  "history %i: the world changes while its events are handled, and the followers are cached from before",
  async (seed) => {
    const random = seeded(seed);
    const world = new World();
    const log: MemoryLog = [];
    const processes = [openFanout(redis, world, { log }), openFanout(redis, world, { log })];
    const history: TimelineEvent[] = [];
    for (let burst = 0; burst < 6; burst++) {
      const more = historyIn(world, seeded(seed * 1_000 + burst), 12).map(
        (event): TimelineEvent => renamed(event, burst),
      );
      rename(world, more);
      history.push(...more);
      log.push(...admittedOf(more));
      await run(processes, duplicatedAndShuffled(random, [...more, ...history.filter(() => random() < 0.1)]), random);
    }
    await expectTimelines(redis.raw, USERS, history);
  },
);

// Invariant 3.
test.each(Array.from({ length: 8 }, (_, seed) => seed + 201))(
  "history %i: Redis loses everything half way; replayed from the log it ends in the state of the model",
  async (seed) => {
    const random = seeded(seed);
    const world = new World();
    const history = historyIn(world, random, 50);
    const log = admittedOf(history);
    const processes = [openFanout(redis, world, { log }), openFanout(redis, world, { log })];
    const shuffled = duplicatedAndShuffled(random, history);
    const half = run(processes, shuffled.slice(0, 25), random);
    await redis.raw.flushall();
    await half;
    await run(processes, shuffled, random);
    await expectTimelines(redis.raw, USERS, history);
  },
);

/** Each call of a process may fail before its effect or after it, as where the process ends there. */
const failingBy =
  (random: Random) =>
  (deps: FanoutDeps): FanoutDeps => ({
    ...failing(deps, ["notify", "queue", "complete", "readFollowers", "readAuthorDrops"], random),
    writer: failing(
      deps.writer,
      [
        "addToHomes",
        "removeFromHomes",
        "removeFromHomesWithNote",
        "addShared",
        "removeShared",
        "rememberActor",
        "rememberDirect",
        "interruptRebuilds",
      ],
      random,
    ),
    fences: failing(
      deps.fences,
      ["recordTombstones", "tombstonedAmong", "changeEdges", "newestEdges", "unfollowedAmong", "renewGenerations"],
      random,
    ),
    progress: failing(deps.progress, ["planned", "done"], random),
  });

// Invariant 3.
test.each(Array.from({ length: 25 }, (_, seed) => seed + 801))(
  "history %i: calls fail before their effect or after it, and it ends in the state of the model",
  async (seed) => {
    const random = seeded(seed);
    const world = new World();
    const history = historyIn(world, random, 60);
    const options = { log: admittedOf(history), pageSize: oneOf(random, [1, 2, 100]), change: failingBy(random) };
    const processes = [openFanout(redis, world, options), openFanout(redis, world, options)];
    await run(processes, duplicatedAndShuffled(random, history), random);
    await expectTimelines(redis.raw, USERS, history);
  },
);

/** Drop ids of different bursts must differ: ids are never used again. */
function renamed(event: TimelineEvent, burst: number): TimelineEvent {
  const { payload } = event;
  if (!("drop_id" in payload)) return event;
  return { ...event, payload: { ...payload, drop_id: `${payload.drop_id}.${burst}` } } as TimelineEvent;
}

/** Puts the renamed drops into the world in the place of those it was made with. */
function rename(world: World, events: readonly TimelineEvent[]): void {
  const dead = new Set(events.flatMap((event) => (event.channel === "drop_deleted" ? [event.payload.drop_id] : [])));
  for (const event of events) {
    if (event.channel !== "drop_created" && event.channel !== "ap_drop_received") continue;
    const { drop_id, user_id, created_at, visibility = "public" } = event.payload;
    const original = world.find(drop_id.slice(0, drop_id.lastIndexOf(".")));
    if (!original || user_id === undefined || typeof created_at !== "number") throw new Error(`unknown: ${drop_id}`);
    if (!original.deleted) world.remove(original.drop_id);
    world.post({ drop_id, user_id, created_at, visibility, recipients: original.recipients });
    if (dead.has(drop_id)) world.remove(drop_id);
  }
}

test.each(Array.from({ length: 25 }, (_, seed) => seed + 601))(
  "history %i: follows and unfollows are applied in batches, beside everything else, and it ends in the state of the model",
  async (seed) => {
    const random = seeded(seed);
    const world = new World();
    const history = historyIn(world, random, 80);
    const options = { log: admittedOf(history), pageSize: oneOf(random, [1, 2, 100]) };
    const processes = [openFanout(redis, world, options), openFanout(redis, world, options)];
    const batches = chunked(duplicatedAndShuffled(random, history), 1 + below(random, 30));
    await mapLimited(batches, 4, async (batch) => {
      const bench = oneOf(random, processes);
      const edges = admittedOf(batch.filter(({ channel }) => channel.startsWith("user_"))).map(
        ({ event, time }) => ({ event, admittedAt: time }) as AdmittedEdge,
      );
      const drops = batch.filter(({ channel }) => !channel.startsWith("user_"));
      await Promise.all([
        insisting(async () => void (await createApplyEdges(bench.deps)(edges))),
        random() < 0.5 ? together(bench, drops) : mapLimited(drops, 3, (event) => handle(bench, event, NOW)),
      ]);
    });
    await Promise.all(processes.map(work));
    await expectTimelines(redis.raw, USERS, history);
  },
);
