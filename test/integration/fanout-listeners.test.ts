import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { notifySubject } from "../../src/contracts/subjects.js";
import { AppError } from "../../src/kernel/errors.js";
import { encodeId } from "../../src/kernel/ids.js";
import { silent } from "../../src/kernel/logger.js";
import type { Publish } from "../../src/platform/nats/publish.js";
import { createNodeCalls, type Scripts } from "../../src/platform/redis/scripts.js";
import { PULLS_COMPLETE, PULLS_FILLING } from "../../src/state/big-authors/pulled.js";
import { listenerPart, pullsKey, RECENT_KEY, recentKey } from "../../src/state/keys.js";
import { createNotifyUser } from "../../src/state/listeners/listed.redis.js";
import { createListeners, type Listeners } from "../../src/state/listeners/listeners.redis.js";
import { createListenersAmong } from "../../src/state/listeners/listening.redis.js";
import { asCluster, clockOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";

const redis = redisOfFile();
const [MINUTE, _HOUR] = [60_000, 3_600_000];

/** One server in the place of a cluster with one node. */
function asOneNode(scripts: Scripts): Scripts {
  const nodes = { ...asCluster(scripts), nodeOf: () => "node", nodeAt: () => "node" };
  return { ...nodes, ...createNodeCalls(nodes, silent) };
}

interface How {
  readonly isCluster?: boolean;
  readonly hasOneNode?: boolean;
  readonly unfollowed?: readonly string[];
  readonly fillPulls?: (user: string) => Promise<void>;
  readonly commands?: string[];
}

function open({
  isCluster = false,
  hasOneNode = false,
  unfollowed = [],
  fillPulls = async () => undefined,
  commands = [],
}: How): Listeners {
  const cluster = hasOneNode ? asOneNode : asCluster;
  const scripts = isCluster ? cluster(redis.scripts) : redis.scripts;
  return createListeners({
    scripts: {
      ...scripts,
      command: (name, call) => {
        commands.push(name);
        return scripts.command(name, call);
      },
    },
    clock: clockOn(redis.scripts),
    unfollowedAmong: async (_, users) => users.filter((user) => unfollowed.includes(user)),
    fillPulls,
    findLists: async () => [],
  });
}

interface Seen {
  readonly seen?: (at: number) => number;
  readonly isCluster?: boolean;
}

async function listen(
  users: readonly string[],
  { seen = () => Date.now(), isCluster = false }: Seen = {},
): Promise<void> {
  const pipeline = redis.raw.pipeline();
  for (const [at, user] of users.entries())
    pipeline.zadd(recentKey(listenerPart(user, isCluster)), seen(at), encodeId(user));
  await pipeline.exec();
}

async function pull(users: readonly string[], ...authors: readonly string[]): Promise<void> {
  const pipeline = redis.raw.pipeline();
  for (const user of users) pipeline.sadd(pullsKey(user), PULLS_COMPLETE, ...authors.map(encodeId));
  await pipeline.exec();
}

async function visited(listeners: Listeners, author: string): Promise<string[]> {
  const all: string[] = [];
  await listeners.visit(author, async (users) => void all.push(...users));
  return all.sort();
}

const names = (prefix: string, count: number): string[] => Array.from({ length: count }, (_, at) => `${prefix}${at}`);

const listener = fc.record({
  user: fc.string({ unit: fc.constantFrom("a", "b", "é", "~", "}"), minLength: 1, maxLength: 3 }),
  /** A stream that was closed longer ago than the window of NOTIFY does not count. */
  minutesAgo: fc.constantFrom(0, 1, 9, 11),
  set: fc.constantFrom("known", "unknown", "filling"),
  pulls: fc.subarray(["ada", "eve é"]),
  left: fc.boolean(),
  /** In a cluster gateways of 0.1.0 list their users in the key of a single server. */
  older: fc.boolean(),
});

// Invariant 2.
test.each([false, true])(
  "listeners who follow the author are visited once each, and those who have left are not (in a cluster: %s)",
  async (isCluster) => {
    const some = fc.uniqueArray(listener, { selector: ({ user }) => user, maxLength: 20 });
    await fc.assert(
      fc.asyncProperty(some, async (users) => {
        await redis.raw.flushall();
        for (const { user, minutesAgo, set, pulls, older } of users) {
          await listen([user], { seen: () => Date.now() - minutesAgo * MINUTE, isCluster: isCluster && !older });
          if (set === "known") await pull([user], ...pulls);
          if (set === "filling") await redis.raw.sadd(pullsKey(user), `${PULLS_FILLING}1`, ...pulls.map(encodeId));
        }
        const fillPulls = async (user: string): Promise<void> => {
          await redis.raw.del(pullsKey(user));
          await pull([user], ...(users.find((one) => one.user === user)?.pulls ?? []));
        };
        const unfollowed = users.filter(({ left }) => left).map(({ user }) => user);
        const listeners = open({ isCluster, unfollowed, fillPulls });
        for (const author of ["ada", "eve é"]) {
          const follow = users.filter((one) => one.minutesAgo < 10 && !one.left && one.pulls.includes(author));
          expect(await visited(listeners, author)).toEqual(follow.map(({ user }) => user).sort());
        }
      }),
      { numRuns: 40 },
    );
  },
);

test.each([
  ["one ms", "one server", 0],
  ["a ms each", "one server", 1],
  ["one ms", "a cluster", 0],
] as const)(
  "of more than a page of listeners who were last seen in %s each is visited once by %s",
  async (_, server, apart) => {
    const isCluster = server === "a cluster";
    const users = names("u", 2_500);
    const now = Date.now();
    await listen(users, { seen: (at) => now - at * apart, isCluster });
    await pull(users, "ada");
    const listeners = open({ isCluster });
    expect(await visited(listeners, "ada")).toEqual([...users].sort());
    for (const hasOneNode of [false, true]) expect(await open({ isCluster, hasOneNode }).count()).toBe(users.length);
  },
);

// Invariant 2.
test("the walk misses nobody who is seen again meanwhile", async () => {
  const users = names("u", 3_000);
  const now = Date.now();
  await listen(users, { seen: (at) => now - 10_000 + at });
  await pull(users, "ada");
  const seen = new Set<string>();
  await open({}).visit("ada", async (some) => {
    for (const user of some) seen.add(user);
    await listen(users.slice(1_500, 2_500));
  });
  expect(seen.size).toBe(users.length);
});

// Invariant 7.
test.each([
  ["ahead", 30_000],
  ["behind", -30_000],
])("who is listed is decided by the clock of Redis, also where ours is %s", async (_, skewMs) => {
  const { now } = Date;
  const users = ["here", "gone"];
  await listen(users, { seen: (at) => now() - (at === 0 ? 9.75 : 10.25) * MINUTE });
  await pull(users, "ada");
  const { scripts } = redis;
  const clock = clockOn(scripts);
  const told: string[] = [];
  const publish: Publish = async ({ subject }) => {
    told.push(subject);
    return { stream: "NOTIFY", seq: told.length, duplicate: false };
  };
  const notifyUser = createNotifyUser({ publish, scripts, clock });
  Date.now = () => now() + skewMs;
  try {
    const isListening = await createListenersAmong(scripts, clock)([users]);
    expect(users.filter((user) => isListening?.(user))).toEqual(["here"]);
    expect(await visited(open({}), "ada")).toEqual(["here"]);
    for (const user of users) await notifyUser(user, { event: "reset", reason: "a test" }, user);
    expect(told).toEqual([notifySubject("here")]);
  } finally {
    Date.now = now;
  }
});

test("authors who are asked for together share a walk", async () => {
  await listen(names("u", 20));
  await pull(names("u", 10), "ada", "eve");
  await pull(names("u", 20).slice(10), "ada");
  const commands: string[] = [];
  const listeners = open({ commands });
  const [ada, eve, nobody] = await Promise.all(["ada", "eve", "zoe"].map((author) => visited(listeners, author)));
  expect([ada?.length, eve?.length, nobody?.length]).toEqual([20, 10, 0]);
  expect(commands).toEqual(["zrange"]);
});

test("listeners whose pulled authors are not known are visited after all others", async () => {
  await listen(["new", ...names("u", 1_500)]);
  await pull(names("u", 1_500), "ada");
  const order: string[] = [];
  const listeners = open({ fillPulls: async (user) => pull([user], "ada") });
  await listeners.visit("ada", async (users) => void order.push(...users));
  expect([order.length, order.at(-1)]).toEqual([1_501, "new"]);
});

// Invariant 2.
test("a listener whose followings cannot be read is left out; while the upstream is unavailable nobody is", async () => {
  await listen(["broken", "well"]);
  await pull(["well"], "ada");
  const failing = (code: "failed" | "unavailable") =>
    open({ fillPulls: () => Promise.reject(new AppError(code, "no answer")) });
  expect(await visited(failing("failed"), "ada")).toEqual(["well"]);
  await expect(visited(failing("unavailable"), "ada")).rejects.toMatchObject({ code: "unavailable" });
});

// Invariant 7.
test("in a cluster users are notified beside gateways of 0.1.0, whichever gateway lists them", async () => {
  const scripts = asCluster(redis.scripts);
  const clock = clockOn(redis.scripts);
  const users = ["old", "new", "both", "moved on", "gone"];
  const minutesAgo = (minutes: number) => ({ seen: () => Date.now() - minutes * MINUTE });
  await listen(["old", "both"], minutesAgo(9));
  await listen(["moved on", "gone"], minutesAgo(11));
  await listen(["new", "both", "moved on"], { isCluster: true });
  await pull(users, "ada");
  const told: string[] = [];
  const publish: Publish = async ({ subject }) => {
    told.push(subject);
    return { stream: "NOTIFY", seq: told.length, duplicate: false };
  };
  const notifyUser = createNotifyUser({ publish, scripts, clock });
  for (const user of users) await notifyUser(user, { event: "reset", reason: "a test" }, user);
  const listeners = ["old", "new", "both", "moved on"];
  expect(told).toEqual(listeners.map((user) => notifySubject(user)));
  const isListening = await createListenersAmong(scripts, clock)([users]);
  expect(users.filter((user) => isListening?.(user))).toEqual(listeners);
  expect(new Set(await visited(open({ isCluster: true }), "ada"))).toEqual(new Set(listeners));
  expect(await open({ isCluster: true }).count()).toBeGreaterThanOrEqual(listeners.length);
  await redis.raw.del(RECENT_KEY);
  const withoutOld = await createListenersAmong(scripts, clock)([users]);
  expect(users.filter((user) => withoutOld?.(user))).toEqual(["new", "both", "moved on"]);
});
