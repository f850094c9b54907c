import { beforeEach, expect, test } from "@jest/globals";
import { notifyPartOf } from "../../src/contracts/notify-parts.js";
import { notifySubject } from "../../src/contracts/subjects.js";
import { createFeed } from "../../src/gateway/feed.nats.js";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { presentParts } from "../../src/platform/nats/notify-streams.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { eventually } from "../support/eventually.js";
import {
  cleanups,
  connection,
  connectionWith,
  forge,
  listen,
  names,
  nats,
  type Raw,
  type Running,
  start,
} from "../support/gateway.js";
import { TcpProxy } from "../support/proxy.js";

const declare = async (notifyParts: number): Promise<void> =>
  applyTopology(await connection.jetstreamManager(), { replicas: 1, notifyParts }, silent);

beforeEach(() => declare(4));

let published = 0;
/** Publishes as a process with this number of parts does. */
async function sendAs(parts: number, user: string, drop: string): Promise<void> {
  const body = JSON.stringify({ event: "new_drop", drop_id: drop, created_at: 1_700_000_000_000 });
  const { publish } = createPublisher(connection, { notifyParts: parts });
  await publish({ subject: notifySubject(user), body, id: `${drop}:${published++}` });
}

/** Finds a user with these parts under 2, 4 and 8. */
function userIn(wanted: Readonly<Record<number, number>>): string {
  const fits = (user: string): boolean =>
    Object.entries(wanted).every(([count, part]) => notifyPartOf(user, Number(count)).number === part);
  return names("user-", 1_000).find(fits) as string;
}

const resumed = (running: Running, user: string, raw: Raw): Promise<Raw> => listen(running, user, raw.lastId);

const beats = (raw: Raw): number => raw.blocks().filter((block) => block.startsWith(": heartbeat")).length;

/** Any reset that is due has come by then: a heartbeat follows its check. */
async function hasNoReset(raw: Raw): Promise<void> {
  const before = beats(raw);
  await eventually(() => beats(raw) >= before + 2, "two heartbeats");
  expect(raw.resets()).toEqual([]);
}

async function getsReset(raw: Raw, reason: string): Promise<void> {
  await eventually(() => raw.resets().length > 0, "a reset");
  expect(raw.resets()).toEqual([reason]);
}

// Invariant 7.
test("with four parts an id names its part, and a resume replays what was missed there", async () => {
  const running = await start({ notifyParts: 4 });
  for (const part of [0, 1, 2, 3]) {
    const user = userIn({ 4: part });
    const first = await listen(running, user);
    expect(first.lastId).toMatch(new RegExp(`^\\d+-[0-9a-z]+\\.${part}-[0-9a-z]+$`));
    await sendAs(4, user, "d1");
    await first.sees(["d1"]);
    await first.goes();
    for (const drop of names("missed", 20)) await sendAs(4, user, drop);
    await sendAs(4, userIn({ 4: (part + 1) % 4 }), "of somebody else");
    const second = await resumed(running, user, first);
    await second.sees(names("missed", 20));
    await sendAs(4, user, "live");
    await second.sees([...names("missed", 20), "live"]);
    await hasNoReset(second);
  }
});

test.each(["alice", "bob"])("a forged live message in a part of %s is not continued by a resume", async (user) => {
  const running = await start({ notifyParts: 4 });
  const raw = await listen(running, user);
  await sendAs(4, user, "d1");
  await raw.sees(["d1"]);
  forge(user, "forged", raw.lastSeq + 1, 4);
  await raw.sees(["d1", "forged"]);
  const id = raw.events.at(-1)?.id as string;
  await raw.goes();
  await sendAs(4, user, "genuine");
  await getsReset(await listen(running, user, id), "unknown_position");
});

test("a live message of a part that core NATS lost is found by the next one, or by the next heartbeat", async () => {
  const losing = connectionWith({
    subscribe: (subject, { callback, ...options } = {}) =>
      connection.subscribe(subject, {
        ...options,
        callback: (error, message) => {
          if (!message.string().includes('"lost-')) callback?.(error, message);
        },
      }),
  });
  const running = await start({ nats: losing, notifyParts: 4 });
  const raw = await listen(running, "alice");
  for (const drop of ["lost-1", "d2", "lost-3"]) await sendAs(4, "alice", drop);
  await raw.sees(["lost-1", "d2", "lost-3"]);
  expect(raw.resets()).toEqual([]);
});

test.each([
  [1, 4],
  [4, 1],
  [2, 4],
  [4, 2],
])("a resume gets a reset where %i parts have become %i, and the user's part is another", async (before, after) => {
  const user = userIn({ 2: 1, 4: 3 });
  const old = await start({ notifyParts: before });
  const first = await listen(old, user);
  await sendAs(before, user, "d1");
  await first.sees(["d1"]);
  await first.goes();
  const second = await resumed(await start({ notifyParts: after }), user, first);
  await getsReset(second, "stream_replaced");
  await sendAs(after, user, "d2");
  await second.sees(["d2"]);
});

test("a resume goes on where the number of parts is changed, and the user's part is the same", async () => {
  const user = userIn({ 2: 1, 4: 1 });
  const first = await listen(await start({ notifyParts: 2 }), user);
  await sendAs(2, user, "d1");
  await first.sees(["d1"]);
  await first.goes();
  await sendAs(2, user, "d2");
  await sendAs(4, user, "d3");
  const second = await resumed(await start({ notifyParts: 4 }), user, first);
  await second.sees(["d2", "d3"]);
  await hasNoReset(second);
});

// Invariant 7.
test.each([
  [1, 4],
  [4, 1],
  [4, 2],
  [4, 64],
])("an open stream with %i parts gets a reset for what a process with %i publishes", async (own, other) => {
  await declare(other);
  const user = userIn({ 2: 1, 4: 3, 64: 63 });
  const raw = await listen(await start({ notifyParts: own }), user);
  await sendAs(own, user, "d1");
  await raw.sees(["d1"]);
  await sendAs(other, user, "elsewhere");
  await getsReset(raw, "stream_replaced");
  await sendAs(own, user, "d2");
  await raw.sees(["d1", "d2"]);
  // One reset stands for all that came before it.
  await eventually(() => beats(raw) > 3, "more heartbeats");
  expect(raw.resets()).toHaveLength(1);
});

// Invariant 7.
test.each([1, 2, 3, 6, 64])(
  "a client that was away while a process with %i parts published gets a reset, where all have four again",
  async (other) => {
    await declare(other);
    const user = userIn({ 2: 1, 4: 3, 8: 7, 64: 63 });
    const running = await start({ notifyParts: 4 });
    const first = await listen(running, user);
    await first.goes();
    await sendAs(other, user, "elsewhere");
    await getsReset(await resumed(running, user, first), "stream_replaced");
    expect((await resumed(running, "somebody else", await listen(running, "somebody else"))).resets()).toEqual([]);
  },
);

// A resume right after a start comes before the first look; until then any of 64 parts may exist.
test("a look into other parts waits until it is known which exist, and asks no others", async () => {
  const manager = await connection.jetstreamManager();
  let answer = (): void => undefined;
  const answered = new Promise<void>((resolve) => {
    answer = resolve;
  });
  async function* slowNames(subject?: string): AsyncGenerator<string> {
    await answered;
    yield* manager.streams.names(subject);
  }
  const streams = Object.assign(Object.create(manager.streams), { names: slowNames }) as typeof manager.streams;
  const asked: string[] = [];
  const slow = connectionWith({
    jetstreamManager: async () => Object.assign(Object.create(manager), { streams }) as typeof manager,
    request: (subject, ...rest) => {
      if (subject.startsWith("$JS.API.STREAM.MSG.GET.")) asked.push(subject.slice("$JS.API.STREAM.MSG.GET.".length));
      return connection.request(subject, ...rest);
    },
  });
  const feed = createFeed(slow, { parts: 4, onGap: () => undefined });
  cleanups.push(() => feed.close());
  const user = userIn({ 4: 3 });
  const found = feed.of(user).isElsewhere(user);
  answer();
  expect(await found).toBe(false);
  const present = (await presentParts(connection)).map(({ part }) => part.stream);
  expect(present).toContain("NOTIFY");
  expect(asked).toContain("NOTIFY");
  expect(asked.filter((stream) => !present.includes(stream))).toEqual([]);
});

// Invariant 7.
test("an open stream gets a reset after a cut link where another part stored something meanwhile", async () => {
  const proxy = await TcpProxy.open(nats.port);
  cleanups.push(() => proxy.close());
  const link = await connectNats({ servers: [proxy.url("nats")], name: "cut" }, silent);
  cleanups.push(() => link.close());
  let refusals = 0;
  let isRefused = true;
  const refusing = connectionWith(
    {
      request: (subject, ...rest) => {
        const isLook = subject.startsWith("$JS.API.STREAM.MSG.GET.") && !/-[23]$/.test(subject);
        if (isLook) refusals++;
        if (isLook && isRefused) return Promise.reject(new Error("no answer"));
        return link.request(subject, ...rest);
      },
    },
    link,
  );
  const running = await start({ nats: refusing, notifyParts: 4 });
  const [user, other] = [userIn({ 4: 3 }), userIn({ 4: 2 })];
  const [raw, untouched] = [await listen(running, user), await listen(running, other)];
  proxy.refuse(true);
  await eventually(() => !running.gateway.healthy(), "the gateway notices");
  await sendAs(1, user, "elsewhere");
  await sendAs(4, other, "in its part");
  proxy.refuse(false);
  // The look into other parts that the gap causes gets no answer: a heartbeat looks again.
  await eventually(() => refusals > 0, "a look");
  const before = beats(raw);
  await eventually(() => beats(raw) >= before + 2, "heartbeats");
  expect(raw.resets()).toEqual([]);
  isRefused = false;
  await getsReset(raw, "stream_replaced");
  await untouched.sees(["in its part"]);
  expect(untouched.resets()).toEqual([]);
});
