import { expect } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { testWithStack } from "../support/stack.js";

const hoursAgo = (hours: number): number => Date.now() - hours * 3_600_000;

// Invariant 5.
testWithStack(
  "empty brokers beside upstreams with drops: pages are whole at once, and the log is filled beside them, also after a kill",
  { service: false },
  async (stack) => {
    const { streams, world, upstreams, start } = stack;
    const ages = [1, 30, 160, 5_000];
    for (const hours of ages) {
      const drop_id = `hours-${hours}`;
      world.post({ drop_id, user_id: "alice", created_at: hoursAgo(hours) });
      world.touch(drop_id, hoursAgo(hours));
    }
    // A process that only reads waits for nobody.
    const other = await start({ roles: "api" });
    const reads = openReader(other.grpcAddress);
    stack.defer(() => reads.close());
    const whole = { drop_ids: ages.map((hours) => `hours-${hours}`), degraded: false };
    for (const read of [() => reads.home("alice"), reads.local, reads.global])
      expect(await read()).toMatchObject(whole);
    const killed = await start({ roles: "fanout", env: { AVION_TEST_FAILPOINTS: "fill-window=kill@120" } });
    expect((await killed.exited).signal).toBe("SIGKILL");
    for (const read of [() => reads.home("alice"), reads.local, reads.global])
      expect(await read()).toMatchObject(whole);
    const before = upstreams.calls("ListDrops");
    const service = await start({ roles: "fanout" });
    await eventually(() => /the first fill of the log is done/.test(service.output()), "the log is filled", 60_000);
    // Of an older drop no log tells. The windows before the kill are not read again.
    expect(await streams.count("DROPS")).toBe(3);
    expect(upstreams.calls("ListDrops") - before).toBeLessThan(60);
    expect(upstreams.calls("ListDrops")).toBeLessThan(230);
    const output = [killed, service].map((one) => one.output()).join("");
    expect(output).not.toMatch(/"level":"error"|\blost\b|degraded|fences .* are missing/);
    const metrics = await (await fetch(`${service.httpUrl}/metrics`)).text();
    expect(metrics).toMatch(/^timeline_log_fill_ratio\S* 1$/m);
    expect(metrics).toMatch(/^timeline_log_losses_total\S* 0$/m);
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
