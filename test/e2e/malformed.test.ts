import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { badPayloads, goodPayload } from "../support/payloads.js";
import { type SharedStack, type Stack, sharedStack, testWithStack } from "../support/stack.js";
import type { Stored } from "../support/streams.js";
import { created, followed } from "../support/timeline-events.js";
import { held, heldBy, homeKey } from "../support/timeline-keys.js";

/** Publishes raw bytes; fails when the bridge does not listen any more. */
async function publishBytes({ redis }: Stack, channel: string, bytes: Buffer | string): Promise<void> {
  expect(await redis.publish(channel, bytes as string)).toBeGreaterThan(0);
}

const onStack = sharedStack();

/** A test that begins with an empty DLQ and an empty local, on the stack of the others. */
const testLetters = (name: string, work: (stack: SharedStack) => Promise<void>): void =>
  onStack(name, async (stack) => {
    await stack.streams.manager.streams.purge("DLQ");
    await stack.redis.del("timeline:local");
    await work(stack);
  });

let proofs = 0;

/** The service still takes a drop and shows it. */
async function expectAlive(stack: Stack): Promise<void> {
  const before = await stack.streams.count("DROPS");
  const number = ++proofs;
  const [drop_id, user_id] = [`proof-of-life-${number}`, `proof-${number}`];
  const drop = { drop_id, user_id, visibility: "public" as const, created_at: Date.now() };
  stack.world.post(drop);
  await stack.publish(created(drop));
  await stack.streams.settled(before + 1);
  expect((await stack.reads.home(user_id)).drop_ids).toEqual([drop_id]);
}

function expectBridgeLetter(letter: Stored, channel: string, reason: string): void {
  expect(letter.subject).toBe(`dlq.${reason}.${channel}`);
  expect(letter.headers).toMatchObject({ "Dlq-Reason": reason, "Dlq-Subject": channel, "Dlq-Redrive-Count": "0" });
  expect(letter.headers["Dlq-Stream"] ?? "").toBe("");
  expect(letter.headers["Dlq-Stream-Seq"] ?? "").toBe("");
  for (const name of ["Dlq-Error", "Dlq-Error-Code", "Dlq-Version"]) {
    expect({ name, value: letter.headers[name] ?? "" }).toEqual({ name, value: expect.stringMatching(/^[^\r\n]+$/) });
  }
  for (const name of ["Dlq-First-Seen", "Dlq-Failed-At"]) {
    expect({ name, aDate: Number.isFinite(Date.parse(letter.headers[name] ?? "")) }).toEqual({ name, aDate: true });
  }
}

testLetters("whatever cannot be understood is kept byte for byte with the reason, and stops nothing", async (stack) => {
  const bad = badPayloads();
  const distinct = new Map(bad.map((payload) => [`${payload.channel} ${payload.bytes.toString("base64")}`, payload]));
  for (const { channel, bytes } of distinct.values()) await publishBytes(stack, channel, bytes);
  await eventually(
    async () => {
      const letters = await stack.streams.count("DLQ");
      return letters >= distinct.size || `${letters} of ${distinct.size} letters`;
    },
    "every payload is in the DLQ",
    10_000,
  ).catch(() => undefined);
  const letters = new Map<string, Stored>();
  for (const letter of await stack.streams.all("DLQ")) {
    letters.set(`${letter.subject.split(".").at(-1)} ${letter.body.toString("base64")}`, letter);
  }
  const lost = [...distinct].filter(([key]) => !letters.has(key)).map(([, { name }]) => name);
  expect(lost).toEqual([]);
  for (const [key, { channel }] of distinct) expectBridgeLetter(letters.get(key) as Stored, channel, "invalid");
  expect(await stack.streams.count("DLQ")).toBe(distinct.size);
  expect(await stack.streams.count("DROPS")).toBe(0);
  await expectAlive(stack);
});

testLetters("a payload too large for a message is kept cut, with its size", async (stack) => {
  const filler = "f".repeat(2 * 1_024 * 1_024);
  const valid = JSON.stringify({ ...goodPayload("drop_created", "huge"), filler });
  const broken = `{"drop_id":"${filler}`;
  for (const text of [valid, broken]) await publishBytes(stack, "drop_created", text);
  await eventually(async () => (await stack.streams.count("DLQ")) >= 2, "two letters");
  const letters = await stack.streams.all("DLQ");
  expect(letters).toHaveLength(2);
  for (const [position, text] of [valid, broken].entries()) {
    const letter = letters[position] as Stored;
    expectBridgeLetter(letter, "drop_created", "toolarge");
    expect(letter.headers["Dlq-Size"]).toBe(String(text.length));
    expect(letter.body.length).toBeGreaterThan(0);
    expect(letter.body.length).toBeLessThan(text.length);
    expect(text.startsWith(letter.body.toString())).toBe(true);
  }
  await expectAlive(stack);
});

// Invariant 1.
testLetters("payloads around the limit of a message are either admitted or kept", async (stack) => {
  const limit = 1_024 * 1_024;
  const sizes = [limit - 5_000, limit - 600, limit - 100, limit - 1, limit, limit + 1];
  for (const size of sizes) {
    const good = { ...goodPayload("drop_created", String(size)), filler: "" };
    const room = size - JSON.stringify(good).length;
    await publishBytes(stack, "drop_created", JSON.stringify({ ...good, filler: "f".repeat(room) }));
  }
  const sum = async (): Promise<number> => (await stack.streams.count("DLQ")) + (await stack.streams.count("DROPS"));
  await eventually(async () => (await sum()) >= sizes.length, "every payload is somewhere");
  expect(await sum()).toBe(sizes.length);
  await expectAlive(stack);
});

const ODD_IDS = [
  "a.b",
  "*",
  ">",
  "notify.user.>",
  "a b",
  " ",
  "bob ",
  "\n",
  "\r\nNats-Msg-Id: forged",
  "\t",
  "{}",
  "{tag}",
  "a{b}c",
  "\u0000",
  "a\u0000b",
  "😀",
  "日本語",
  "\u202e",
  "=Ym9i",
  "=",
  "~",
  "~floor ",
  "-inf",
  "(1",
  "__proto__",
  "constructor",
  "../../etc/passwd",
  "https://remote.example/users/rita?x=1#main",
  "x".repeat(64),
  "x".repeat(65),
  "x".repeat(128),
  "ü".repeat(64),
  '"',
  "\\",
  "%00",
  "$1",
] as const;

// Invariant 9.
testLetters("odd ids are data: of users, authors and drops", async (stack) => {
  const { world, streams, redis, reads } = stack;
  const alice = stack.id("alice");
  const users = [...ODD_IDS, "~floor", "local"];
  const events = users.flatMap((user, position) => {
    const number = position + 1;
    const own = {
      drop_id: `own-${number}`,
      user_id: user,
      visibility: "followers" as const,
      created_at: 1_000 + number,
    };
    world.post(own);
    return [created(own), followed(user, alice, world.follow(user, alice))];
  });
  const drops = ODD_IDS.map((drop_id, position) => {
    const drop = { drop_id, user_id: alice, visibility: "public" as const, created_at: 5_000 + position };
    world.post(drop);
    return created(drop);
  });
  await stack.publish(...events);
  await streams.settled(events.length);
  await stack.publish(...drops);
  await streams.settled(events.length + drops.length);
  expect(await streams.count("DLQ")).toBe(0);
  const ofAlice = ODD_IDS.toReversed();
  expect((await held(redis, "timeline:local")).entries.map(([id]) => id)).toEqual(ofAlice);
  for (const [position, user] of users.entries()) {
    const page = await reads.home(user, { limit: 100 });
    expect({ user, ids: page.drop_ids }).toEqual({ user, ids: [...ofAlice, `own-${position + 1}`] });
  }
  const homes = await heldBy(redis, users.map(homeKey));
  for (const user of users)
    expect({ user, held: homes.get(homeKey(user))?.entries.length }).toEqual({ user, held: ODD_IDS.length + 1 });
});

// Invariant 1.
testWithStack(
  "an event that only a later version knows becomes a dead letter, and holds up nothing",
  {},
  async (stack) => {
    const { streams, redis, reads } = stack;
    const { config } = await streams.manager.streams.info("DROPS");
    const later = ["drops.pinned", "graph.renamed"];
    await streams.manager.streams.update("DROPS", { ...config, subjects: [...config.subjects, ...later] });
    for (const subject of later) await streams.connection.jetstream().publish(subject, '{"drop_id":"d"}');
    await eventually(async () => (await streams.count("DLQ")) === later.length, "each has its letter", 10_000);
    await eventually(async () => (await streams.unfinished()) === 0, "no consumer is left with them");
    expect((await streams.all("DLQ")).map(({ subject }) => subject)).toEqual(Array(2).fill("dlq.invalid.unknown"));
    // Fences and shared timelines are built from the log.
    await redis.flushall();
    const drop = { drop_id: "after", user_id: "alice", visibility: "public" as const, created_at: Date.now() };
    stack.world.post(drop);
    await stack.publish(created(drop));
    await streams.settled(later.length + 1);
    expect((await reads.local({})).drop_ids).toEqual(["after"]);
  },
);

// Invariant 9.
testWithStack("odd ids as cursors", {}, async (stack) => {
  const drops = ODD_IDS.map((drop_id) => ({
    drop_id,
    user_id: "alice",
    visibility: "public" as const,
    created_at: 7_000,
  }));
  stack.world.post(...drops);
  await stack.publish(...drops.map(created));
  await stack.streams.settled(drops.length);
  const order = [...ODD_IDS].sort((left, right) => Buffer.compare(Buffer.from(right), Buffer.from(left)));
  for (const read of [(query: object) => stack.reads.home("alice", query), stack.reads.local]) {
    expect((await read({ limit: 100 })).drop_ids).toEqual(order);
    for (const [position, max_id] of order.entries()) {
      const page = await read({ limit: 2, max_id });
      expect({ max_id, ids: page.drop_ids }).toEqual({ max_id, ids: order.slice(position + 1, position + 3) });
    }
  }
});

testLetters("optional fields that make no sense cost no event", async (stack) => {
  const odd = [
    { traceparent: "00-bad\r\nInjected: 1" },
    { traceparent: "x".repeat(5_000) },
    { something: { else: [1, 2, 3] } },
    { "Nats-Msg-Id": "forged" },
  ];
  for (const [number, fields] of odd.entries()) {
    await publishBytes(
      stack,
      "drop_created",
      JSON.stringify({ ...goodPayload("drop_created", `odd-${number}`), ...fields }),
    );
  }
  const raw = JSON.stringify(goodPayload("drop_created", "odd-proto"));
  await publishBytes(stack, "drop_created", `{"__proto__":{"admin":true},${raw.slice(1)}`);
  await stack.streams.settled(odd.length + 1);
  expect(await stack.streams.count("DLQ")).toBe(0);
  expect((await held(stack.redis, "timeline:local")).entries).toHaveLength(odd.length + 1);
  await expectAlive(stack);
});

testWithStack("two bridges admit an event once and write a dead letter once", {}, async (stack) => {
  await stack.start();
  const good = Array.from({ length: 40 }, (_, number) => {
    const drop = {
      drop_id: `twice-${number}`,
      user_id: "alice",
      visibility: "public" as const,
      created_at: 1_000 + number,
    };
    stack.world.post(drop);
    return created(drop);
  });
  const bad = badPayloads().filter(({ name }) => /NaN|no user_id|unknown|no UTF-8/.test(name));
  for (const { channel, bytes } of bad) expect(await stack.redis.publish(channel, bytes as unknown as string)).toBe(2);
  const huge = JSON.stringify({ ...goodPayload("drop_created", "huge"), filler: "f".repeat(1_500_000) });
  expect(await stack.redis.publish("drop_created", huge)).toBe(2);
  await stack.publish(...good);
  await stack.streams.settled(good.length);
  await eventually(async () => (await stack.streams.count("DLQ")) >= bad.length + 1, "all letters");
  await expectAlive(stack);
  expect(await stack.streams.count("DLQ")).toBe(bad.length + 1);
  expect((await held(stack.redis, "timeline:local")).entries).toHaveLength(good.length + 1);
});
