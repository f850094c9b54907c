import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { openEvents } from "../support/sse.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import { created, related } from "../support/timeline-events.js";
import type { WorldDrop } from "../support/world.js";

const START = Date.now() - 600_000;
const AUTHORS = ["bob", "cat", "dan"] as const;

const onStack = sharedStack();

/** Posts a drop, which the log has then. The names of people and drops are the test's own. */
async function post({ world, publish, id }: SharedStack, author: string, at: number): Promise<void> {
  const drop_id = id(`${author}-${at}`);
  const drop = { drop_id, user_id: id(author), visibility: "public", created_at: START + at } as const;
  world.post(drop satisfies WorldDrop);
  await publish(created(drop));
}

/** Ada follows three authors, of whom each has a drop. */
async function seed(stack: SharedStack): Promise<void> {
  const { world, id } = stack;
  for (const author of AUTHORS) world.follow(id("ada"), id(author));
  for (const [at, author] of AUTHORS.entries()) await post(stack, author, at);
  await stack.streams.settled(AUTHORS.length);
}

/** Home and local, which the tests share, without the drops of others. */
async function pagesOf({ reads, world, id }: SharedStack, name: string) {
  const user = id(name);
  const pages = await Promise.all([reads.home(user, { limit: 100 }), reads.local({ user_id: user, limit: 100 })]);
  const own = new Set(AUTHORS.map(id));
  const isOwn = (drop_id: string): boolean => own.has(world.find(drop_id)?.user_id ?? "");
  return pages.map((page) => ({ ...page, drop_ids: page.drop_ids.filter(isOwn) }));
}

/** Home and local show these drops. */
const shows = (stack: SharedStack, user: string, names: readonly string[], degraded = false) =>
  becomes(async () => {
    const page = { drop_ids: names.map(stack.id), degraded };
    expect(await pagesOf(stack, user)).toMatchObject([page, page]);
  });

// Invariant 5.
onStack(
  "while the users service tells no relations pages are degraded and judged by what was known last, and later they are whole",
  async (stack) => {
    const { upstreams, world, id } = stack;
    await seed(stack);
    world.mute(id("ada"), id("bob"));
    await stack.publish(related("user_muted", id("ada"), id("bob")));
    await stack.streams.settled(AUTHORS.length + 1);
    await shows(stack, "ada", ["dan-2", "cat-1"]);
    const heals = (["GetHidden", "GetRelations"] as const).map((method) =>
      upstreams.inject({ method, code: status.UNAVAILABLE }),
    );
    const heal = () => heals.map((each) => each());
    await shows(stack, "ada", ["dan-2", "cat-1"]);
    world.mute(id("ada"), id("cat"));
    await stack.publish(related("user_muted", id("ada"), id("cat")));
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
    world.unmute(id("ada"), id("cat"));
    await stack.publish(related("user_unmuted", id("ada"), id("cat"), { version: 2 }));
    await shows(stack, "ada", ["dan-21", "cat-20", "dan-2", "cat-1"]);
  },
);

// Invariant 5.
onStack("GetHidden that fails for one user hurts no other; their stream is told to read again", async (stack) => {
  const { upstreams, world, id } = stack;
  world.follow(id("eve"), id("dan"));
  await seed(stack);
  const [adas, eves] = [
    await openEvents(stack.service.httpUrl, id("ada")),
    await openEvents(stack.service.httpUrl, id("eve")),
  ];
  const heal = upstreams.inject({ method: "GetHidden", user: id("ada"), code: status.INTERNAL });
  await post(stack, "dan", 30);
  await eventually(() => eves.drops().includes(id("dan-30")), "the drop on the stream of another");
  expect((await adas.waitFor("reset")).data).toEqual({ reason: "relations_unknown" });
  await shows(stack, "ada", ["dan-30", "dan-2", "cat-1", "bob-0"], true);
  expect((await stack.reads.home(id("eve"), { limit: 100 })).degraded).toBe(false);
  heal();
  await shows(stack, "ada", ["dan-30", "dan-2", "cat-1", "bob-0"]);
  await post(stack, "dan", 31);
  await eventually(() => adas.drops().includes(id("dan-31")), "the next drop on the stream");
  expect(await stack.streams.count("DLQ")).toBe(0);
  for (const stream of [adas, eves]) stream.close();
});

// Invariant 5.
onStack("a mute ends by itself on pages and streams, whether it was told of or read", async (stack) => {
  const { world, id } = stack;
  await seed(stack);
  for (const author of AUTHORS) world.follow(id("eve"), id(author));
  await shows(stack, "ada", ["dan-2", "cat-1", "bob-0"]);
  const stream = await openEvents(stack.service.httpUrl, id("ada"));
  const expires_at = Date.now() + 5_000;
  world.mute(id("ada"), id("bob"), false, expires_at);
  await stack.publish(related("user_muted", id("ada"), id("bob"), { expires_at }));
  // Nothing tells of this mute: GetHidden does.
  world.mute(id("eve"), id("bob"), false, expires_at);
  await shows(stack, "ada", ["dan-2", "cat-1"]);
  await shows(stack, "eve", ["dan-2", "cat-1"]);
  await post(stack, "bob", 10);
  await stack.streams.settled(AUTHORS.length + 2);
  const isOver = (): boolean => Date.now() >= expires_at;
  // Pages are read, and cached, all the time.
  for (const all = ["bob-10", "dan-2", "cat-1", "bob-0"].map(id); !isOver(); )
    for (const user of ["ada", "eve"])
      for (const { drop_ids } of await pagesOf(stack, user)) if (!isOver()) expect(drop_ids).not.toEqual(all);
  for (const user of ["ada", "eve"]) await shows(stack, user, ["bob-10", "dan-2", "cat-1", "bob-0"]);
  expect(Date.now() - expires_at).toBeLessThan(5_000);
  await post(stack, "bob", 11);
  await eventually(() => stream.drops().includes(id("bob-11")), "the drop on the stream");
  expect(stream.drops()).toEqual([id("bob-11")]);
  stream.close();
});

// Invariant 5.
onStack("a mute that Redis Pub/Sub lost is found by reconciliation", async (stack) => {
  const { world, id } = stack;
  await seed(stack);
  await shows(stack, "ada", ["dan-2", "cat-1", "bob-0"]);
  world.mute(id("ada"), id("bob"));
  world.block(id("dan"), id("ada"));
  expect(await jsonOf(stack, ["reconcile", "--since", "1m"])).toMatchObject({ complete: true });
  await shows(stack, "ada", ["cat-1"]);
});

// It comes last, whatever the process remembers of it.
// Invariant 5.
onStack("with a users service without relations nobody is hidden, and no page is degraded", async (stack) => {
  const { upstreams, world, id } = stack;
  for (const method of ["GetHidden", "GetRelations", "ListRelationChanges"] as const)
    stack.defer(upstreams.inject({ method, code: status.UNIMPLEMENTED }));
  await seed(stack);
  world.mute(id("ada"), id("bob"));
  expect(await pagesOf(stack, "ada")).toMatchObject([
    { drop_ids: ["dan-2", "cat-1", "bob-0"].map(id), degraded: false },
    { drop_ids: ["dan-2", "cat-1", "bob-0"].map(id), degraded: false },
  ]);
  const stream = await openEvents(stack.service.httpUrl, id("ada"));
  await stack.publish(related("user_muted", id("ada"), id("bob")));
  await stack.streams.settled(AUTHORS.length + 1);
  await post(stack, "bob", 10);
  await eventually(() => stream.drops().includes(id("bob-10")), "the drop on the stream");
  await shows(stack, "ada", ["bob-10", "dan-2", "cat-1", "bob-0"]);
  expect(stream.events.map(({ event }) => event)).toEqual(["new_drop"]);
  stream.close();
});
