import { expect } from "@jest/globals";
import { expectTimelines } from "../support/oracle.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, followed, type TimelineEvent } from "../support/timeline-events.js";

const START = Date.now() - 3_600_000;
const READERS = ["bob", "carol", "dora"];
const KILLER = "killer-drop";
const ENV = {
  TIMELINE_ACK_WAIT_MS: "3500",
  AVION_TEST_FAILPOINTS: `handle=kill@${KILLER}`,
};

/** Drops of one author, one of which ends whoever handles it. */
function load({ world }: Stack, count: number): TimelineEvent[] {
  for (const reader of READERS) world.follow(reader, "alice");
  const drops = Array.from({ length: count }, (_, number) => ({
    drop_id: number === 20 ? KILLER : `load-${number}`,
    user_id: "alice",
    visibility: "followers" as const,
    created_at: START + number,
  }));
  world.post(...drops);
  return drops.map(created);
}

/** Runs the role fanout, and starts it again whenever it dies; yields how often it died. */
function supervise(stack: Stack, env: Readonly<Record<string, string>> = ENV): { stop(): Promise<number> } {
  let stopping = false;
  let deaths = 0;
  const run = async (): Promise<void> => {
    while (!stopping) {
      const service = await stack.start({ roles: "fanout", env }).catch(() => undefined);
      if (service === undefined) continue;
      const poll = setInterval(() => stopping && service.signal("SIGTERM"), 50);
      const { signal } = await service.exited;
      clearInterval(poll);
      if (signal === "SIGKILL") deaths += 1;
    }
  };
  const running = run();
  return {
    async stop() {
      stopping = true;
      await running;
      return deaths;
    },
  };
}

// Invariant 10.
testWithStack(
  "an event that kills its worker every time is the dead letter `crashed` after five, and takes no neighbour along",
  { roles: "bridge", env: ENV, timeoutMs: 120_000, slow: true, reconciliation: false },
  async (stack) => {
    const history = load(stack, 300);
    await stack.publish(...history);
    const supervisor = supervise(stack);
    try {
      await stack.streams.settledWith(history.length, 90_000);
    } finally {
      await supervisor.stop();
    }
    const letters = await stack.streams.all("DLQ");
    expect(letters.map(({ subject, headers }) => [subject, headers["Dlq-Deliveries"]])).toEqual([
      ["dlq.crashed.drop_created", "5"],
    ]);
    expect(letters.map(({ body }) => String(body))).toEqual([expect.stringContaining(KILLER)]);
    // One that died before it was ready is not among them.
    expect(await supervisor.stop()).toBeLessThanOrEqual(5);
    const others = history.filter(({ payload }) => !JSON.stringify(payload).includes(KILLER));
    const edges = READERS.map((reader) => followed(reader, "alice", 1));
    await expectTimelines(stack.redis, ["alice", ...READERS], [...edges, ...others]);
  },
);

// Invariant 10.
testWithStack(
  "an event that kills its worker only after it has waited for a server becomes `crashed`, and takes no neighbour along",
  { roles: "bridge", env: ENV, timeoutMs: 180_000, slow: true, reconciliation: false },
  async (stack) => {
    const history = load(stack, 60);
    // Far longer than a suspect is alone at first: other suspects are under way when the process ends.
    stack.upstreams.inject({ method: "GetFollowersList", user: "alice", delayMs: 1_000 });
    await stack.publish(...history);
    const supervisor = supervise(stack, { ...ENV, AVION_TEST_FAILPOINTS: `handled=kill@${KILLER}` });
    try {
      await stack.streams.settledWith(history.length, 150_000);
    } finally {
      await supervisor.stop();
    }
    const letters = await stack.streams.all("DLQ");
    expect(letters.map(({ subject }) => subject)).toEqual(["dlq.crashed.drop_created"]);
    expect(letters.map(({ body }) => String(body))).toEqual([expect.stringContaining(KILLER)]);
    // It ends the process after its writes.
    const edges = READERS.map((reader) => followed(reader, "alice", 1));
    await expectTimelines(stack.redis, ["alice", ...READERS], [...edges, ...history]);
  },
);
