import { expect } from "@jest/globals";
import { jsonOf } from "../support/command.js";
import { downIds, pagesDown, pagesUp, upIds } from "../support/reader.js";
import { testWithStack } from "../support/stack.js";
import { created, deleted, received } from "../support/timeline-events.js";

const CAP = 20;
const MINUTE = 60_000;
const START = Date.now() - 30 * MINUTE;

const own = Array.from({ length: 12 }, (_, at) => ({
  ...{ drop_id: `own-${at}`, user_id: "ada", visibility: "public" as const },
  created_at: START + at,
}));
const remote = (from: number, count: number) =>
  Array.from({ length: count }, (_, at) => ({
    ...{ drop_id: `remote-${from + at}`, user_id: "rita", visibility: "public" as const },
    created_at: START + 1_000 * (from + at),
  }));
const idsOf = (drops: readonly { readonly drop_id: string }[]): string[] =>
  drops.map(({ drop_id }) => drop_id).toReversed();

// Invariants 5 and 6.
testWithStack(
  "a busy server does not push our own drops out of global, and audits, rebuilds and late drops keep to its share",
  {
    env: {
      TIMELINE_MAX_ENTRIES: String(CAP),
      TIMELINE_GLOBAL_REMOTE_SHARE: "0.25",
      TIMELINE_AUDIT_SETTLE_MS: "300",
    },
    timeoutMs: 90_000,
  },
  async (stack) => {
    const { streams, publish, reads, redis, world } = stack;
    expect(await reads.global()).toMatchObject({ drop_ids: [], degraded: false });
    world.post(...own);
    const flood = remote(1, 60);
    await publish(...own.map(created), ...flood.map(received));
    await streams.settled(72);
    const paged = async (): Promise<string[]> => {
      const pages = await pagesDown(reads.global, { limit: 4 });
      expect(pages.filter(({ degraded }) => degraded)).toEqual([]);
      expect(upIds(await pagesUp(reads.global, { limit: 3, min_id: own[0]?.drop_id ?? "" }))).toEqual(
        downIds(pages).slice(0, -1),
      );
      return downIds(pages);
    };
    const whole = [...idsOf(flood.slice(-5)), ...idsOf(own)];
    expect(await paged()).toEqual(whole);
    expect(await reads.local()).toMatchObject({ drop_ids: idsOf(own) });

    const audited = async () => (await jsonOf<{ shared: object }>(stack, ["audit"])).shared;
    expect(await audited()).toMatchObject({ global: { result: "same" }, local: { result: "same" } });
    // This drop is older than those that are left out, and comes again.
    await publish(received({ ...(flood[3] as (typeof flood)[number]), drop_id: "late" }));
    await streams.settled(73);
    expect(await paged()).toEqual(whole);

    await redis.del("timeline:global");
    expect(await paged()).toEqual(whole);
    await publish(deleted("remote-60"), deleted("own-11", "ada"));
    world.remove("own-11");
    await streams.settled(75);
    await publish(...remote(61, 2).map(received));
    await streams.settled(77);
    const later = [...idsOf(remote(57, 6)), ...idsOf(own)].filter((id) => id !== "remote-60" && id !== "own-11");
    expect(await paged()).toEqual(later);
    expect(await audited()).toMatchObject({ global: { result: "same" } });

    // An audit applies a share to remote drops that were there before the share.
    await redis.del("timeline:x:remote:{timeline:global}");
    const more = remote(63, 4);
    await publish(...more.map(received));
    await streams.settled(81);
    expect((await paged()).filter((id) => id.startsWith("remote"))).toHaveLength(9);
    await jsonOf(stack, ["audit", "--fix"]);
    expect(await paged()).toEqual([...idsOf(more), "remote-62", ...later.filter((id) => id.startsWith("own"))]);

    await redis.zrem("timeline:global", "own-5");
    const lacking = await jsonOf<{ shared: object }>(stack, ["audit", "--fix"]);
    expect(lacking.shared).toMatchObject({ global: { result: "differing", missing: ["own-5"], repaired: true } });
    expect(await audited()).toMatchObject({ global: { result: "same" } });
  },
);
