import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { becomes, eventually } from "../support/eventually.js";
import type { Read } from "../support/reader.js";
import { type Stack, sharedStack, testWithStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";
import { homeKey } from "../support/timeline-keys.js";

const START = Date.now() - 3_600_000;
const invalid = { code: status.INVALID_ARGUMENT };

const onStack = sharedStack();

/** Drops whose ids carry no date. */
async function post({ world, publish, streams }: Stack, ids: readonly string[], user_id = "ada"): Promise<void> {
  const of = ids.map((drop_id, at) => ({ drop_id, user_id, visibility: "public", created_at: START + at }) as const);
  world.post(...of);
  await publish(...of.map(created));
  await streams.settledWith(ids.length);
}

const NINE = ["d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9"];

// Invariant 5.
// It looks at local and global, and so comes first.
onStack("a drop id without a date is a cursor of a timeline that Redis has lost", async (stack) => {
  const { world, redis, reads } = stack;
  world.follow("bob", "ada");
  await post(stack, NINE);
  const home: Read = (query) => reads.home("bob", query);
  const newer = ["d9", "d8", "d7", "d6"];
  for (const [name, read] of Object.entries({ home, local: reads.local, global: reads.global })) {
    for (const [kind, drop_ids] of Object.entries({
      max_id: ["d4", "d3", "d2", "d1"],
      min_id: newer,
      since_id: newer,
    })) {
      await read();
      await redis.flushall();
      expect({ name, kind, ...(await read({ [kind]: "d5" })) }).toMatchObject({ name, kind, drop_ids });
    }
  }
});

// Invariant 5.
testWithStack(
  "a drop id without a date is a cursor where the reader's pulled authors are not known",
  {
    env: { TIMELINE_FANOUT_PULL_THRESHOLD: "1" },
  },
  async (stack) => {
    const { world, redis, reads } = stack;
    for (const follower of ["bob", "eve"]) world.follow(follower, "ada");
    await post(stack, ["d1"]);
    const state = async () => (await redis.hget("timeline:x:pulled", "ada"))?.split(":")[0];
    await eventually(async () => (await state()) === "pulled", "ada is pulled");
    // What a pulled author posts after the rebuild is not in the home.
    await becomes(async () => expect(await reads.home("bob")).toMatchObject({ drop_ids: ["d1"], degraded: false }));
    await post(stack, ["d2", "d3"]);
    for (const member of [undefined, "~filling:by-an-audit"]) {
      await redis.del("timeline:x:pulls:{timeline:home:bob}");
      if (member) await redis.sadd("timeline:x:pulls:{timeline:home:bob}", member);
      expect(await reads.home("bob", { max_id: "d3" })).toMatchObject({ drop_ids: ["d2", "d1"], degraded: false });
    }
  },
);

// Invariant 5.
onStack("an unknown id is refused once the timeline is complete; until then the page is degraded", async (stack) => {
  const { world, redis, reads, upstreams, id } = stack;
  const [ada, bob] = [id("ada"), id("bob")];
  const idsOf = (...names: readonly string[]): string[] => names.map(id);
  world.follow(bob, ada);
  await post(stack, idsOf(...NINE), ada);
  await becomes(async () => expect((await reads.home(bob)).degraded).toBe(false));
  const calls = upstreams.calls("GetFollowingList");
  for (let again = 0; again < 3; again++)
    await expect(reads.home(bob, { max_id: "never" })).rejects.toMatchObject(invalid);
  expect(upstreams.calls("GetFollowingList")).toBe(calls);

  await redis.del(homeKey(bob));
  const heal = upstreams.inject({ method: "GetFollowingList", code: status.UNAVAILABLE });
  for (const max_id of [id("d5"), "never"]) {
    const page = await reads.home(bob, { max_id });
    expect(page).toMatchObject({
      drop_ids: [],
      has_more: false,
      next_max_id: max_id,
      prev_min_id: max_id,
      degraded: true,
    });
  }
  heal();
  await becomes(async () =>
    expect(await reads.home(bob, { max_id: id("d5") })).toMatchObject({
      drop_ids: idsOf("d4", "d3", "d2", "d1"),
      degraded: false,
    }),
  );
  await expect(reads.home(bob, { max_id: "never" })).rejects.toMatchObject(invalid);
});
