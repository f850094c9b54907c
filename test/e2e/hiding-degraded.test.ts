import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, related } from "../support/timeline-events.js";
import type { WorldDrop } from "../support/world.js";

const START = Date.now() - 600_000;
const AUTHORS = ["bob", "cat", "dan"] as const;

/** Posts a drop, which the log has then. */
async function post({ world, publish }: Stack, user_id: string, at: number): Promise<string> {
  const drop = { drop_id: `${user_id}-${at}`, user_id, visibility: "public", created_at: START + at } as const;
  world.post(drop satisfies WorldDrop);
  await publish(created(drop));
  return drop.drop_id;
}

/** Ada follows three authors, of whom each has a drop. */
async function seed(stack: Stack): Promise<void> {
  for (const author of AUTHORS) stack.world.follow("ada", author);
  for (const [at, author] of AUTHORS.entries()) await post(stack, author, at);
  await stack.streams.settled(AUTHORS.length);
}

const pagesOf = async ({ reads }: Stack, user: string) =>
  Promise.all([reads.home(user, { limit: 100 }), reads.local({ user_id: user, limit: 100 })]);

/** Home and local show these drops. */
const shows = (stack: Stack, user: string, drop_ids: readonly string[], degraded = false) =>
  becomes(async () => {
    const page = { drop_ids, degraded };
    expect(await pagesOf(stack, user)).toMatchObject([page, page]);
  });

// Invariant 5.
testWithStack("with a users service without relations nobody is hidden, and no page is degraded", {}, async (stack) => {
  const { upstreams, world } = stack;
  upstreams.inject({ method: "GetHidden", code: status.UNIMPLEMENTED });
  upstreams.inject({ method: "GetRelations", code: status.UNIMPLEMENTED });
  upstreams.inject({ method: "ListRelationChanges", code: status.UNIMPLEMENTED });
  await seed(stack);
  world.mute("ada", "bob");
  expect(await pagesOf(stack, "ada")).toMatchObject([
    { drop_ids: ["dan-2", "cat-1", "bob-0"], degraded: false },
    { drop_ids: ["dan-2", "cat-1", "bob-0"], degraded: false },
  ]);
  const stream = await openEvents(stack.service.httpUrl, "ada");
  await stack.publish(related("user_muted", "ada", "bob"));
  await stack.streams.settled(AUTHORS.length + 1);
  await post(stack, "bob", 10);
  await eventually(() => stream.drops().includes("bob-10"), "the drop on the stream");
  await shows(stack, "ada", ["bob-10", "dan-2", "cat-1", "bob-0"]);
  expect(stream.events.map(({ event }) => event)).toEqual(["new_drop"]);
  stream.close();
});

// Invariant 5.
testWithStack(
  "while the users service tells no relations pages are degraded and judged by what was known last, and later they are whole",
  {},
  async (stack) => {
    const { upstreams, world } = stack;
    await seed(stack);
    world.mute("ada", "bob");
    await stack.publish(related("user_muted", "ada", "bob"));
    await stack.streams.settled(AUTHORS.length + 1);
    await shows(stack, "ada", ["dan-2", "cat-1"]);
    const heals = (["GetHidden", "GetRelations"] as const).map((method) =>
      upstreams.inject({ method, code: status.UNAVAILABLE }),
    );
    const heal = () => heals.map((each) => each());
    await shows(stack, "ada", ["dan-2", "cat-1"]);
    world.mute("ada", "cat");
    await stack.publish(related("user_muted", "ada", "cat"));
    await stack.streams.settled(AUTHORS.length + 2);
    await shows(stack, "ada", ["dan-2"], true);
    await post(stack, "cat", 20);
    await post(stack, "dan", 21);
    await stack.streams.settled(AUTHORS.length + 4);
    await shows(stack, "ada", ["dan-21", "dan-2"], true);
    // Whoever is not asked about is not hurt.
    expect((await stack.reads.local({ limit: 100 })).degraded).toBe(false);
    heal();
    await shows(stack, "ada", ["dan-21", "dan-2"]);
    world.unmute("ada", "cat");
    await stack.publish(related("user_unmuted", "ada", "cat", { version: 2 }));
    await shows(stack, "ada", ["dan-21", "cat-20", "dan-2", "cat-1"]);
  },
);

// Invariant 5.
testWithStack(
  "GetHidden that fails for one user hurts no other; their stream is told to read again",
  {},
  async (stack) => {
    const { upstreams, world } = stack;
    world.follow("eve", "dan");
    await seed(stack);
    const [adas, eves] = [
      await openEvents(stack.service.httpUrl, "ada"),
      await openEvents(stack.service.httpUrl, "eve"),
    ];
    const heal = upstreams.inject({ method: "GetHidden", user: "ada", code: status.INTERNAL });
    await post(stack, "dan", 30);
    await eventually(() => eves.drops().includes("dan-30"), "the drop on the stream of another");
    expect((await adas.waitFor("reset")).data).toEqual({ reason: "relations_unknown" });
    await shows(stack, "ada", ["dan-30", "dan-2", "cat-1", "bob-0"], true);
    expect((await stack.reads.home("eve", { limit: 100 })).degraded).toBe(false);
    heal();
    await shows(stack, "ada", ["dan-30", "dan-2", "cat-1", "bob-0"]);
    await post(stack, "dan", 31);
    await eventually(() => adas.drops().includes("dan-31"), "the next drop on the stream");
    expect(await stack.streams.count("DLQ")).toBe(0);
    for (const stream of [adas, eves]) stream.close();
  },
);

// Invariant 5.
testWithStack("a mute that Redis Pub/Sub lost is found by reconciliation", {}, async (stack) => {
  await seed(stack);
  await shows(stack, "ada", ["dan-2", "cat-1", "bob-0"]);
  stack.world.mute("ada", "bob");
  stack.world.block("dan", "ada");
  expect(await jsonOf(stack, ["reconcile", "--since", "1m"])).toMatchObject({ complete: true });
  await shows(stack, "ada", ["cat-1"]);
});
