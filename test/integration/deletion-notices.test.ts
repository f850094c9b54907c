import { expect, test } from "@jest/globals";
import type { DropNotification } from "../../src/contracts/stream-events.js";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { composeFanout } from "../../src/fanout/fanout.js";
import { createNotify } from "../../src/fanout/notify.js";
import { createPublishNotifications } from "../../src/fanout/publish.nats.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { readPage } from "../../src/reads/pages.js";
import { createRebuild } from "../../src/reads/rebuild.js";
import { PULLS_COMPLETE } from "../../src/state/big-authors/pulled.js";
import type { AuthorRegistry } from "../../src/state/big-authors/registry.js";
import { createFences } from "../../src/state/fences/fences.js";
import { authorKey, pullsKey, RECENT_KEY, removalNotesKey } from "../../src/state/keys.js";
import { DROP, type FanoutBench, followers, handle, openFanout, work } from "../support/fanout.js";
import { historyOf, rebuildQueue } from "../support/memory-upstreams.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { openRegistry, stateOf, step } from "../support/pulled.js";
import { below, oneOf, type Random, seeded } from "../support/random.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, followed, unfollowed } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import type { World } from "../support/world.js";

const redis = redisOfFile();
const nats = natsOfFile();

const MAX_ENTRIES = 20;
const QUIET = { log: silent, observe: () => undefined };

/** A process of `api`. */
function openReads(world: World, registry?: AuthorRegistry) {
  const { store, hidden, fenceStore } = adaptersOn(redis.scripts, { maxEntries: MAX_ENTRIES }, registry);
  const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
  const rebuild = createRebuild({ store, fences, fillHidden: hidden.fill, rebuildQueue, ...QUIET });
  const entriesOf = (user: string) =>
    world.homeOf(user).map(({ drop_id: drop, created_at: score }) => ({ drop, score }));
  return {
    /** Reads a page, and resolves once what it hides has left the home. */
    async page(user: string): Promise<void> {
      const removals: Promise<void>[] = [];
      const remove: typeof store.remove = (...args) => {
        const removal = store.remove(...args);
        removals.push(removal);
        return removal;
      };
      const query = { direction: "older", above: undefined, below: undefined, count: 10 } as const;
      await readPage({ store: { read: store.read, remove }, fences }, homeKey(user), query);
      await Promise.all(removals);
    },
    rebuild: (user: string, during = async () => {}) =>
      rebuild(
        homeKey(user),
        async () => {
          const entries = entriesOf(user);
          await during();
          return { entries, floor: 0 };
        },
        { afresh: true },
      ),
  };
}

/** A process of `fanout` that notifies through NATS, and does something else before each step. */
function openSteps(
  world: World,
  before: (step: string) => Promise<void>,
  { pageSize = 100, registry }: { readonly pageSize?: number; readonly registry?: AuthorRegistry | undefined } = {},
): FanoutBench {
  const stepping = <T extends object>(port: T): T => {
    const steps = Object.entries(port).map(([name, call]) => {
      const isPlain = name === "recentUnfollowers" || name === "retentionStart";
      const stepped = async (...args: unknown[]) => {
        await before(name);
        return call(...args);
      };
      return [name, isPlain ? call : stepped];
    });
    return Object.fromEntries(steps) as T;
  };
  const change = (deps: FanoutDeps): FanoutDeps => {
    const writer = stepping(deps.writer);
    const notify = createNotify({ ...deps, writer, publish: createPublishNotifications(nats.publishAll) });
    return {
      ...deps,
      ...{ writer, fences: stepping(deps.fences), ...(registry && { authorStates: registry }) },
      notify: async (all) => {
        await before("notify");
        const [told] = [await notify(all), await before("notified")];
        return told;
      },
    };
  };
  return openFanout(redis, world, { pageSize, maxEntries: MAX_ENTRIES, change });
}

const listen = (...users: string[]) => redis.raw.zadd(RECENT_KEY, ...users.flatMap((user) => [Date.now(), user]));
const makeReadable = async (users: readonly string[]) => {
  for (const user of users) await redis.raw.zadd(homeKey(user), 0, "~floor");
};

/** Users told of the deletion of a drop, each as often as NOTIFY has it. */
async function toldOf(drop_id: string): Promise<string[]> {
  const body = JSON.stringify({ event: "drop_deleted", drop_id });
  const all = await nats.streams.all("NOTIFY");
  return all
    .filter((message) => String(message.body) === body)
    .map(({ subject }) => subject.replace("notify.user.", ""))
    .sort();
}

/** The events of a drop that NOTIFY has for a user, in order. */
async function storedFor(user: string, drop_id: string): Promise<string[]> {
  const all = await nats.streams.all("NOTIFY");
  return all
    .filter(({ subject }) => subject === `notify.user.${user}`)
    .map(({ body }) => JSON.parse(String(body)) as DropNotification)
    .flatMap((notification) => (notification.drop_id === drop_id ? notification.event : []));
}

let drops = 0;
const newDrop = () => ({ ...DROP, drop_id: `drop-${++drops}`, visibility: "followers" as const });

type Reads = ReturnType<typeof openReads>;
interface Taking {
  readonly world: World;
  readonly reads: Reads;
  readonly fanout: FanoutBench;
}

const TAKINGS: readonly (readonly [what: string, take: (of: Taking) => Promise<unknown>])[] = [
  ["a page that is read", ({ reads }) => reads.page("f0")],
  ["a rebuild", ({ reads }) => reads.rebuild("f0")],
  ["a follow", ({ world, fanout }) => handle(fanout, followed("f0", "ada", world.follow("f0", "ada")))],
  ["an unfollow", ({ world, fanout }) => handle(fanout, unfollowed("f0", "ada", world.unfollow("f0", "ada")))],
];

// Invariant 2.
test.each(TAKINGS)(
  "a listener is notified of a deletion, also if %s has removed the drop from the home",
  async (_, take) => {
    const world = followers(2);
    const reads = openReads(world);
    const fanout = openFanout(redis, world);
    const drop = newDrop();
    world.post(drop);
    await listen("f0", "f1");
    await makeReadable(["f0", "f1"]);
    await handle(fanout, created(drop));
    world.remove(drop.drop_id);
    const bench = openSteps(world, async (name) => {
      if (name !== "notify") return;
      await take({ world, reads, fanout });
      expect((await held(redis.raw, homeKey("f0"))).entries).toEqual([]);
    });
    await handle(bench, deleted(drop.drop_id, "ada"));
    expect(await toldOf(drop.drop_id)).toEqual(["f0", "f1"]);
  },
);

// Invariant 2.
test("a listener is notified of a deletion, also if it comes while their home is rebuilt with the drop", async () => {
  const world = followers(1);
  const reads = openReads(world);
  const fanout = openFanout(redis, world);
  const drop = newDrop();
  world.post(drop);
  await listen("f0");
  await makeReadable(["f0"]);
  await handle(fanout, created(drop));
  let rebuilding: Promise<void> | undefined;
  const bench = openSteps(world, async (name) => {
    if (name === "notify") await rebuilding;
  });
  let deleting: Promise<void> | undefined;
  const recorded = new Promise<void>((resolve) => {
    rebuilding = reads.rebuild("f0", async () => {
      const { recordTombstones } = fanout.deps.fences;
      await recordTombstones([{ drop: drop.drop_id, time: Date.now() }]);
      deleting = handle(bench, deleted(drop.drop_id, "ada"));
      resolve();
    });
  });
  await recorded;
  await deleting;
  expect((await held(redis.raw, homeKey("f0"))).entries).toEqual([]);
  expect(await toldOf(drop.drop_id)).toEqual(["f0"]);
});

/** Ada is pulled by f0 and f1, who listen. */
async function pulledAda(world: World): Promise<AuthorRegistry> {
  const registry = openRegistry(redis, Number.POSITIVE_INFINITY);
  const fanout = openFanout(redis, world, { change: (deps) => ({ ...deps, authorStates: registry }) });
  await registry.choose("ada", "pull");
  await step(fanout, registry);
  expect(await stateOf(registry, "ada")).toBe("pulled");
  for (const user of ["f0", "f1"]) await redis.raw.sadd(pullsKey(user), PULLS_COMPLETE, "ada");
  await listen("f0", "f1");
  await makeReadable(["f0", "f1"]);
  await redis.raw.zadd(authorKey("ada"), 0, "~floor");
  return registry;
}

// Invariant 2.
test("listeners of a pulled author are notified of a deletion, also if a page has removed the drop from the author's timeline", async () => {
  const world = followers(3);
  const registry = await pulledAda(world);
  const fanout = openFanout(redis, world, { change: (deps) => ({ ...deps, authorStates: registry }) });
  const reads = openReads(world, registry);
  const drop = newDrop();
  world.post(drop);
  await handle(fanout, created(drop));
  expect((await held(redis.raw, authorKey("ada"))).entries).toHaveLength(1);
  world.remove(drop.drop_id);
  await fanout.deps.fences.recordTombstones([{ drop: drop.drop_id, time: Date.now() }]);
  await reads.page("f0");
  expect((await held(redis.raw, authorKey("ada"))).entries).toEqual([]);
  fanout.notified.length = 0;
  await handle(fanout, deleted(drop.drop_id, "ada"));
  await work(fanout);
  const told = fanout.notified.flatMap(({ users }) => users);
  expect(told).toEqual(expect.arrayContaining(["f0", "f1"]));
  expect(new Set(told).size).toBe(told.length);
});

/** Handles a publication whose tombstone is set after it is written and read by f0. */
async function overtaken(world: World, drop: ReturnType<typeof newDrop>, registry?: AuthorRegistry): Promise<string[]> {
  const reads = openReads(world, registry);
  const timeline = registry ? authorKey("ada") : homeKey("f0");
  const [other, seen] = [openFanout(redis, world), [] as string[]];
  const bench = openSteps(
    world,
    async (name) => {
      if (name !== "tombstonedAmong" || seen.length > 0) return;
      await reads.page("f0");
      seen.push(...(await held(redis.raw, timeline)).entries.map(([id]) => id));
      world.remove(drop.drop_id);
      await other.deps.fences.recordTombstones([{ drop: drop.drop_id, time: Date.now() }]);
    },
    { registry },
  );
  await handle(bench, created(drop));
  expect((await held(redis.raw, timeline)).entries).toEqual([]);
  return seen;
}

// Invariant 2.
test("a listener is notified of a deletion, also if the drop's own fan-out finds the tombstone", async () => {
  const world = followers(3);
  const drop = newDrop();
  world.post(drop);
  await listen("f0", "f1");
  await makeReadable(["f0", "f1", "f2"]);
  expect(await overtaken(world, drop)).toEqual([drop.drop_id]);
  expect(await redis.raw.exists(removalNotesKey(homeKey("f2")))).toBe(0);
  const bench = openSteps(world, async () => {});
  for (let times = 0; times < 2; times++) await handle(bench, deleted(drop.drop_id, "ada"));
  // Its own fan-out repeats it for those who had the drop: an attempt before may have announced the drop last.
  expect(new Set(await toldOf(drop.drop_id))).toEqual(new Set(["f0", "f1"]));
});

// Invariant 2.
test("listeners of a pulled author are notified of a deletion, also if the drop's own fan-out finds the tombstone", async () => {
  const world = followers(3);
  const registry = await pulledAda(world);
  const drop = newDrop();
  world.post(drop);
  expect(await overtaken(world, drop, registry)).toEqual([drop.drop_id]);
  const bench = openSteps(world, async () => {}, { registry });
  await handle(bench, deleted(drop.drop_id, "ada"));
  await work(bench);
  expect(new Set(await toldOf(drop.drop_id))).toEqual(new Set(["f0", "f1"]));
});

/** A deletion that another worker handles while this one is about to announce the drop. */
async function overtaking(how: "pushed" | "pulled", pageSize: number) {
  const world = followers(3);
  const registry = how === "pulled" ? await pulledAda(world) : undefined;
  const drop = newDrop();
  world.post(drop);
  await listen("f0", "f1");
  await makeReadable(["f0", "f1"]);
  const other = openSteps(world, async () => {}, { pageSize, registry });
  const own = openSteps(world, async () => {}, { pageSize, registry });
  return {
    redeliver: () => handle(other, created(drop)),
    async deliver(meanwhile: { before?: () => Promise<void>; after?: () => void }): Promise<void> {
      const notify: FanoutDeps["notify"] = async (all) => {
        const isDrop = all.some(({ users, notification }) => notification.event === "new_drop" && users.includes("f0"));
        if (!isDrop) return own.deps.notify(all);
        await handle(other, deleted(drop.drop_id, "ada"));
        await meanwhile.before?.();
        const told = await own.deps.notify(all);
        meanwhile.after?.();
        return told;
      };
      const { handlers } = composeFanout({ ...own.deps, notify });
      await handle({ ...own, handlers }, created(drop));
    },
    stored: () => Promise.all(["f0", "f1"].map((user) => storedFor(user, drop.drop_id))),
  };
}

/** In pages of two followers the list is not read: listeners are found by their index. */
const OVERTAKEN = [
  ["pushed", 100],
  ["pulled", 100],
  ["pulled", 2],
] as const;

// Invariant 2.
test.each(OVERTAKEN)(
  "a deletion that overtakes the drop of a %s author is announced after it, also if the worker dies once the drop is announced, or another one handles the redelivery before (pages of %d followers)",
  async (how, pageSize) => {
    const dying = await overtaking(how, pageSize);
    const after = (): never => {
      throw new Error("the worker dies");
    };
    await expect(dying.deliver({ after })).rejects.toThrow("the worker dies");
    await dying.redeliver();
    const late = await overtaking(how, pageSize);
    await late.deliver({ before: late.redeliver });
    for (const events of [...(await dying.stored()), ...(await late.stored())])
      expect(events.slice(-2)).toEqual(["new_drop", "drop_deleted"]);
  },
);

test("what a read takes out of a home is noted only if it was deleted or hidden, and for ten minutes", async () => {
  const world = followers(1);
  const reads = openReads(world);
  const fanout = openFanout(redis, world);
  const [kept, gone] = [newDrop(), newDrop()];
  await makeReadable(["f0"]);
  for (const drop of [kept, gone]) await handle(fanout, created(drop));
  await reads.page("f0");
  expect(await redis.raw.exists(removalNotesKey(homeKey("f0")))).toBe(0);
  await fanout.deps.fences.recordTombstones([{ drop: gone.drop_id, time: Date.now() }]);
  await reads.page("f0");
  expect(await redis.raw.zrange(removalNotesKey(homeKey("f0")), "0", "-1")).toEqual([gone.drop_id]);
  const left = await redis.raw.pttl(removalNotesKey(homeKey("f0")));
  expect([left > 540_000, left <= 600_000]).toEqual([true, true]);
});

const USERS = ["f0", "f1", "f2", "f3", "f4", "f5"];

/** A deletion beside pages, rebuilds, follows and failures, and what has to come of it. */
async function history(random: Random) {
  const world = followers(USERS.length);
  const reads = openReads(world);
  const elsewhere = openFanout(redis, world);
  const isDirect = random() < 0.4;
  const recipients = isDirect ? USERS.filter(() => random() < 0.5) : USERS;
  const drop = { ...newDrop(), visibility: isDirect ? "direct" : "followers", recipients } as const;
  world.post(drop);
  const listening = USERS.filter(() => random() < 0.7);
  await listen("nobody", ...listening);
  await makeReadable(USERS);
  await handle(elsewhere, created(drop));
  await work(elsewhere);
  world.remove(drop.drop_id);
  const somebodyElse = async (): Promise<void> => {
    const user = oneOf(random, USERS);
    const what = below(random, 8);
    if (what < 4) await reads.page(user);
    else if (what === 4) await reads.rebuild(user);
    else if (what === 5) await handle(elsewhere, followed(user, "eve", world.follow(user, "eve")));
  };
  const bench = openSteps(
    world,
    async (name) => {
      if (random() < 0.1 && name.startsWith("notif")) throw new AppError("unavailable", "away");
      while (random() < 0.7) await somebodyElse();
    },
    { pageSize: oneOf(random, [2, 100]) },
  );
  do {
    await handle(bench, deleted(drop.drop_id, "ada"));
    await work(bench);
  } while (random() < 0.3);
  const [homes, told] = [
    await Promise.all(USERS.map((user) => held(redis.raw, homeKey(user)))),
    await toldOf(drop.drop_id),
  ];
  return {
    left: homes.flatMap(({ entries }) => entries),
    told,
    holders: listening.filter((user) => recipients.includes(user)),
  };
}

// Invariant 2.
test("whatever happens between the steps of a deletion, each listener who had the drop is notified once, and nobody else is", async () => {
  for (let seed = 1; seed <= 60; seed++) {
    await redis.raw.flushall();
    await nats.manager.streams.purge("NOTIFY");
    const { left, told, holders } = await history(seeded(seed));
    expect({ seed, left, told }).toEqual({ seed, left: [], told: holders });
  }
}, 120_000);
