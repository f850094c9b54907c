import { expect } from "@jest/globals";
import { jsonOf } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { limited } from "../support/limits.js";
import { openReader } from "../support/reader.js";
import { openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";

const FOLLOWERS = Array.from({ length: 40 }, (_, n) => `f${n}`);
const LISTENER = "f0";
const READER = "f39";
const AUTHOR_KEY = "timeline:author:ada";
const ENV = {
  TIMELINE_FANOUT_TIER_THRESHOLD: "3",
  TIMELINE_FANOUT_CHUNK_SIZE: "4",
  ...limited({ recentReadersMs: 0 }),
};
/** The home of the last reader waits for more than half a minute. */
const HELD_BACK = { ...ENV, ...limited({ recentReadersMs: 0, restRate: 1 }) };

interface Completed {
  readonly drop_id: string;
  readonly recipients: number;
  readonly tiers?: Readonly<Record<string, { readonly recipients: number; readonly landed_at: number | null }>>;
}

async function post({ world, publish }: Stack, drop_id: string): Promise<void> {
  const drop = { drop_id, user_id: "ada", visibility: "public", created_at: Date.now() } as const;
  world.post(drop);
  await publish(created(drop));
}

const idsOf = async ({ redis }: Stack, key: string) => (await held(redis, key)).entries.map(([id]) => id);

const completions = async ({ streams }: Stack, drop: string): Promise<Completed[]> =>
  (await streams.all("COMPLETIONS"))
    .map(({ body }) => JSON.parse(String(body)) as Completed)
    .filter(({ drop_id }) => drop_id === drop);

testWithStack(
  "everybody reads a tiered drop at once, listeners are told before the last tier is written, and a killed worker's tiers are written by the next one",
  { env: ENV, service: false, timeoutMs: 180_000 },
  async (stack) => {
    const { world, publish, redis } = stack;
    for (const follower of FOLLOWERS) world.follow(follower, "ada");
    const first = await stack.start({ env: HELD_BACK });
    const reads = openReader(first.grpcAddress);
    stack.defer(() => reads.close());
    const stream = await openEvents(first.httpUrl, LISTENER);
    await post(stack, "d1");
    const isTiered = async () => (await redis.hget("timeline:x:pulled", "ada"))?.startsWith("tiered:") ?? false;
    await eventually(isTiered, "ada is tiered");
    expect(await jsonOf<unknown>(stack, ["author", "ls"])).toMatchObject([
      { author_id: "ada", state: "tiered", by: "count" },
    ]);
    expect((await reads.home(READER)).drop_ids).toEqual(["d1"]);

    await post(stack, "d2");
    await post(stack, "gone");
    await eventually(() => stream.drops().includes("d2") && stream.drops().includes("gone"), "the listener is told");
    const page = await reads.home(READER);
    expect([page.degraded, page.drop_ids]).toEqual([false, ["gone", "d2", "d1"]]);
    expect(await idsOf(stack, homeKey(READER))).toEqual(["d1"]);
    expect(await completions(stack, "d2")).toEqual([]);

    world.remove("gone");
    await publish(deleted("gone", "ada"));
    await eventually(async () => (await reads.home(READER)).drop_ids.join() === "d2,d1", "the deleted drop is gone");
    await eventually(
      async () => (await idsOf(stack, AUTHOR_KEY)).join() === "d2",
      "it is gone from the author's timeline",
    );
    await first.crash();

    await stack.start({ env: ENV });
    await eventually(async () => (await completions(stack, "d2")).length === 1, "the fan-out is complete");
    const [{ recipients, tiers } = { recipients: 0 }] = await completions(stack, "d2");
    expect(recipients).toBe(FOLLOWERS.length + 1);
    expect(tiers).toMatchObject({ connected: { recipients: 2 }, recent: { recipients: 0, landed_at: null } });
    expect(tiers?.["rest"]?.landed_at).toBeGreaterThan(tiers?.["connected"]?.landed_at ?? Number.POSITIVE_INFINITY);
    for (const follower of FOLLOWERS) {
      // A drop that is deleted stands in a home for a moment: the worker writes it, and then finds its tombstone.
      const isWritten = async () => (await idsOf(stack, homeKey(follower))).join() === "d2,d1";
      await eventually(isWritten, `the home of ${follower} has what is not deleted`);
    }
    await eventually(async () => (await redis.exists(AUTHOR_KEY)) === 0, "the author's timeline is empty");
    stream.close();
  },
);
