import { execFile } from "node:child_process";
import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { freeze } from "../support/brokers.js";
import { becomes, eventually } from "../support/eventually.js";
import { seeded, uuidV7 } from "../support/random.js";
import { downIds, pagesDown, type Read } from "../support/reader.js";
import { type Stack, sharedStack, testWithStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";
import type { WorldDrop } from "../support/world.js";

const START = Date.now() - 3_600_000;

const degraded = sharedStack();
let scenes = 0;

type Scene = { readonly reader: string; readonly home: string; readonly other: string; readonly expected: string[] };

function drops(author: string, count: number): WorldDrop[] {
  return Array.from({ length: count }, (_, number) => ({
    drop_id: `${author}-${number}`,
    user_id: author,
    visibility: "public" as const,
    created_at: START + number,
  }));
}

/** A reader of two authors of its own, whose drops have gone through fan-out. */
async function seed(stack: Stack, count = 30): Promise<Scene> {
  const { world } = stack;
  scenes += 1;
  const [reader, other] = [`bob-${scenes}`, `anna-${scenes}`];
  for (const author of [`alice-${scenes}`, other]) {
    world.follow(reader, author);
    world.post(...drops(author, count));
  }
  const events = world
    .homeOf(reader)
    .map(({ drop_id, user_id, created_at }) => created({ drop_id, user_id, created_at, visibility: "public" }));
  await stack.publish(...events);
  await stack.streams.settled(events.length);
  const expected = events.map(({ payload }) => ("drop_id" in payload ? payload.drop_id : ""));
  return { reader, other, expected, home: `timeline:home:${reader}` };
}

const DOWN = [
  { name: "UserService is unavailable", fault: { method: "GetFollowingList", code: status.UNAVAILABLE } },
  { name: "PostService is unavailable", fault: { method: "GetDropsByUserID", code: status.UNAVAILABLE } },
  {
    name: "one author's drops cannot be had",
    fault: { method: "GetDropsByUserID", code: status.INTERNAL },
    ofOne: true,
  },
  { name: "PostService hangs", fault: { method: "GetDropsByUserID", delayMs: 60_000 } },
  { name: "UserService hangs", fault: { method: "GetFollowingList", delayMs: 60_000 } },
] as const;

degraded(
  "a user id that the users service refuses is INVALID_ARGUMENT; where it refuses most, pages are degraded",
  async (stack) => {
    const { reads, upstreams } = stack;
    const { reader } = await seed(stack);
    await reads.home(reader);
    const refusal = { method: "GetFollowingList", code: status.INVALID_ARGUMENT } as const;
    const healOne = upstreams.inject({ ...refusal, user: "bad" });
    await expect(reads.home("bad")).rejects.toMatchObject({
      code: status.INVALID_ARGUMENT,
      details: expect.stringMatching(/^user_id: GetFollowingList: INVALID_ARGUMENT: injected/),
    });
    healOne();
    const heal = upstreams.inject(refusal);
    await becomes(async () => {
      const page = await reads.home(`new-${scenes++}`).catch(() => undefined);
      expect(page?.degraded).toBe(true);
    });
    heal();
    expect((await reads.home("bad")).degraded).toBe(false);
  },
);

for (const { name, fault, ...extent } of DOWN) {
  // Invariant 5.
  degraded(`${name}: a cold home is degraded, a warm one whole, and later both are whole`, async (stack) => {
    const { reads, redis, upstreams } = stack;
    const { reader, home, other, expected } = await seed(stack);
    expect(await reads.home(reader, { limit: 100 })).toMatchObject({ drop_ids: expected, degraded: false });
    const heal = upstreams.inject("ofOne" in extent ? { ...fault, user: other } : fault);
    expect(await reads.home(reader, { limit: 100 })).toMatchObject({ drop_ids: expected, degraded: false });
    expect((await reads.local({ limit: 100 })).degraded).toBe(false);
    await redis.del(home);
    const cold = await reads.home(reader, { limit: 100 });
    expect(cold.degraded).toBe(true);
    expect(cold.drop_ids.filter((id) => !expected.includes(id))).toEqual([]);
    heal();
    await becomes(async () => {
      expect(await reads.home(reader, { limit: 100 })).toMatchObject({ drop_ids: expected, degraded: false });
    });
  });
}

// Invariant 5.
degraded("where one author of many cannot be had, a cold home shows the others, and says so", async (stack) => {
  const { reads, redis, upstreams } = stack;
  const { reader, home, other, expected } = await seed(stack, 10);
  await redis.del(home);
  const heal = upstreams.inject({ method: "GetDropsByUserID", user: other, code: status.INTERNAL });
  const others = expected.filter((id) => !id.startsWith(other));
  expect(await reads.home(reader, { limit: 100 })).toMatchObject({ drop_ids: others, degraded: true });
  heal();
  await becomes(async () => {
    expect(await reads.home(reader, { limit: 100 })).toMatchObject({ drop_ids: expected, degraded: false });
  });
});

// Invariant 5.
testWithStack(
  "below the floor, a page says when PostService was unavailable",
  { env: { TIMELINE_MAX_ENTRIES: "50" } },
  async (stack) => {
    const { reads, upstreams } = stack;
    const { reader, expected } = await seed(stack, 60);
    const read: Read = (query) => reads.home(reader, query);
    expect(downIds(await pagesDown(read, { limit: 20 }))).toEqual(expected);
    const token = (await read({ limit: 40 })).next_max_id;
    const heal = upstreams.inject({ method: "GetDropsByUserID", code: status.UNAVAILABLE });
    const page = await read({ limit: 20, max_id: token });
    expect(page.degraded).toBe(true);
    expect(page.drop_ids).toEqual(expected.slice(40, 40 + page.drop_ids.length));
    heal();
    await becomes(async () => {
      const whole = await read({ limit: 20, max_id: token });
      expect([whole.drop_ids, whole.degraded]).toEqual([expected.slice(40, 60), false]);
    });
  },
);

// Invariant 5.
testWithStack(
  "Redis away: pages are whole or degraded, never an error, and whole again afterwards",
  {},
  async (stack) => {
    const { reads, redisServer } = stack;
    const { reader, expected } = await seed(stack);
    expect((await reads.home(reader, { limit: 100 })).drop_ids).toEqual(expected);
    const timelines = { home: (query: object) => reads.home(reader, query), local: reads.local, global: reads.global };
    await freeze(redisServer);
    try {
      for (const [name, read] of Object.entries(timelines)) {
        const page = await read({ limit: 100 });
        const honest = page.degraded || page.drop_ids.length === expected.length;
        expect({ name, honest }).toEqual({ name, honest: true });
      }
    } finally {
      redisServer.kill("SIGCONT");
    }
    for (const read of Object.values(timelines)) {
      await becomes(async () => {
        expect(await read({ limit: 100 })).toMatchObject({ drop_ids: expected, degraded: false });
      });
    }
  },
);

// Invariant 5.
testWithStack(
  "while Redis is silent and one author's drops are, too, a page shows what came before",
  { env: { TIMELINE_UPSTREAM_CONCURRENCY: "1" } },
  async (stack) => {
    const { reads, redisServer, upstreams, world } = stack;
    const { reader, other, expected } = await seed(stack, 10);
    world.follow(reader, `zoe-${scenes}`);
    upstreams.inject({ method: "GetDropsByUserID", user: other, delayMs: 60_000 });
    await freeze(redisServer);
    try {
      const drop_ids = expected.filter((id) => !id.startsWith(other));
      expect(await reads.home(reader, { limit: 100 })).toMatchObject({ drop_ids, degraded: true });
    } finally {
      redisServer.kill("SIGCONT");
    }
  },
);

degraded("a caller's deadline ends the wait, and the work ends soon after", async (stack) => {
  const { reads, redis, upstreams } = stack;
  const { reader, home } = await seed(stack);
  await redis.del(home);
  const heal = upstreams.inject({ method: "GetDropsByUserID", delayMs: 60_000 });
  const outcome = await reads.home(reader, { limit: 20 }, 700).then(
    (page) => (page.degraded ? "degraded" : "silently short"),
    (error: { code?: number }) => error.code,
  );
  expect([status.DEADLINE_EXCEEDED, "degraded"]).toContain(outcome);
  // A rebuild is shared and outlives its caller. Its calls end after 5 s; then others are asked for, to find who is at fault.
  await eventually(() => upstreams.held() === 0, "calls upstream are given up");
  heal();
});

degraded("gRPC reflection and health answer a generic client", async ({ service }) => {
  const address = `http://${service.grpcAddress}`;
  const curl = (...args: readonly string[]): Promise<string> =>
    new Promise((resolve) => {
      const all = ["curl", "--protocol", "grpc", "--http2-prior-knowledge", ...args];
      execFile("node_modules/.bin/buf", all, (_error, stdout, stderr) => resolve(`${stdout}${stderr}`));
    });
  const [methods, health, refused, page] = await Promise.all([
    curl("--list-methods", address),
    curl("-d", "{}", `${address}/grpc.health.v1.Health/Check`),
    curl("-d", '{"limit": 101}', `${address}/avion.TimelineService/GetLocalTimeline`),
    curl("-d", '{"user_id": "bob"}', `${address}/avion.TimelineService/GetHomeTimeline`),
  ]);
  for (const method of ["GetHomeTimeline", "GetLocalTimeline", "GetGlobalTimeline"]) {
    expect(methods).toContain(`avion.TimelineService/${method}`);
  }
  expect(methods).toContain("grpc.health.v1.Health/Check");
  expect(health).toContain("SERVING");
  expect(refused).toContain("invalid_argument");
  expect(page).toMatch(/\{/);
});

// Invariant 5.
degraded("while Redis is silent, pages come before their callers give up", async (stack) => {
  const { reads, redisServer, world } = stack;
  const { reader } = await seed(stack);
  const dated = uuidV7(seeded(1), START);
  world.post({ drop_id: dated, user_id: reader, created_at: START });
  const page = await reads.home(reader, { limit: 5 });
  const [undated] = page.drop_ids;
  const cursors = [{ max_id: page.next_max_id }, { min_id: page.next_max_id }, { max_id: dated }, { max_id: undated }];
  const asked = [{}, ...cursors];
  await freeze(redisServer);
  try {
    // Shorter than Redis is waited for.
    const pages = await Promise.all(asked.map((query) => reads.home(reader, { ...query, limit: 5 }, 1_900)));
    expect(pages.map((one) => one.degraded)).toEqual(asked.map(() => true));
    await expect(reads.local({ limit: 5 }, 1_900)).resolves.toMatchObject({ degraded: true });
  } finally {
    redisServer.kill("SIGCONT");
  }
});
