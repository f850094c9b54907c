import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { testWithStack } from "../support/stack.js";

// Invariant 5.
testWithStack(
  "empty brokers beside upstreams with drops: pages are degraded until the log has what they list of seven days",
  { service: false },
  async (stack) => {
    const { streams, world, upstreams, start } = stack;
    const hoursAgo = (hours: number): number => Date.now() - hours * 3_600_000;
    for (const hours of [1, 30, 160]) {
      const drop_id = `hours-${hours}`;
      world.post({ drop_id, user_id: "alice", created_at: hoursAgo(hours) });
      world.touch(drop_id, hoursAgo(hours));
    }
    // A process that only reads knows it, too, and waits for nobody.
    const other = await start({ roles: "api" });
    const reads = openReader(other.grpcAddress);
    stack.defer(() => reads.close());
    const whole = ["hours-1", "hours-30", "hours-160"];
    for (const read of [reads.local, reads.global]) expect((await read()).degraded).toBe(true);
    const said = () => other.output().match(/the log is new beside upstreams with drops[^"]*/g);
    await eventually(() => said() !== null, "its log says why");
    expect(said()?.[0]).toContain("until a process of the role fanout has filled it");
    await start({ roles: "fanout" });
    for (const read of [reads.local, reads.global])
      await eventually(async () => {
        const page = await read().catch(() => undefined);
        if (page?.degraded === false) expect(page.drop_ids).toEqual(whole);
        return page?.degraded === false;
      }, "the page is whole");
    expect(said()).toHaveLength(1);
    expect(await streams.count("DROPS")).toBe(3);
    // The quiet days between them are not asked for by the minute.
    expect(upstreams.calls("ListDrops")).toBeLessThan(200);
  },
);

// Invariant 5.
testWithStack(
  "empty brokers beside an upstream that lists nothing: pages are complete at once",
  { service: false, reconciliation: false },
  async ({ world, start, defer }) => {
    world.post({ drop_id: "first", user_id: "alice", created_at: Date.now() - 60_000 });
    const service = await start();
    const reads = openReader(service.grpcAddress);
    defer(() => reads.close());
    expect(await reads.home("alice")).toMatchObject({ drop_ids: ["first"], degraded: false });
    expect((await reads.local()).degraded).toBe(false);
  },
);
