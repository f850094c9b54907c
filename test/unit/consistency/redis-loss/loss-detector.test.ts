import { expect, test } from "@jest/globals";
import { LossDetector } from "../../../../src/consistency/redis-loss/loss-detector.js";
import { silent } from "../../../../src/kernel/logger.js";
import { DAY } from "../../../../src/kernel/time.js";
import type { WaitingEvent } from "../../../../src/state/messages/waiting.redis.js";
import type { IdentityRecord, LogState } from "../../../../src/state/servers/server-identity.redis.js";
import { eventually } from "../../../support/eventually.js";

const STREAMS: LogState = { drops: "monday", fanout: "monday", last: 7, lastJob: 3 };
const WHOLE: IdentityRecord = { redis: "same", from: 5_000_000, log: STREAMS, acked: 7 };

/** One Redis with its record, the streams, and the only process that recovers from a loss. */
function scene(how: {
  readonly held: IdentityRecord;
  readonly streams?: LogState;
  readonly inCharge?: boolean;
  readonly leaveMs?: number;
  readonly beginFirstFill?: () => Promise<void>;
}) {
  const trace: string[] = [];
  const world = { held: how.held, streams: how.streams ?? STREAMS };
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const detector = new LossDetector({
    identity: {
      read: async () => {
        trace.push("look");
        return world.held;
      },
      record: async ({ backlog, log, recovered }) => {
        trace.push(`${recovered ? "recovered" : "recorded"} ${backlog.start} ${log.drops}`);
        world.held = { redis: "same", from: backlog.start, log, acked: backlog.acked };
      },
    },
    readLogState: async () => world.streams,
    log: silent,
    recovery: {
      ...(how.leaveMs === undefined ? {} : { leaveMs: how.leaveMs }),
      lease: { hold: async () => how.inCharge ?? true, release: async () => void trace.push("released") },
      readBacklog: async () => ({ start: 9_000_000, acked: 7 }),
      readUnapplied: async () => ({ start: 9_000_000, acked: 7, waiting: [] }),
      beginFirstFill: async ({ replaced }) => {
        trace.push(replaced ? "fill of another log" : "fill");
        await how.beginFirstFill?.();
      },
      recover: async ({ since, redis, log }) => {
        trace.push(`recover since ${since}${redis ? " redis" : ""}${log ? " log" : ""}`);
        await opened;
        return { events: 3, setAside: [] };
      },
      observe: ({ redis, log }, events) =>
        trace.push(["observed", redis ? "redis" : "", log ? "log" : "", events].filter(String).join(" ")),
    },
  });
  return { detector, trace, open, world };
}

test("without a loss, the record says how far the log is applied", async () => {
  const { detector, trace } = scene({ held: WHOLE });
  await eventually(() => trace.length >= 2, "it looks and records");
  expect([trace.slice(0, 2), detector.maybeLost()]).toEqual([["look", "recorded 9000000 monday"], false]);
  await detector.close();
  expect(trace.at(-1)).toBe("released");
});

test.each<[string, IdentityRecord, LogState, string]>([
  ["Redis lost what it had confirmed", { ...WHOLE, redis: "other" }, STREAMS, "recover since 5000000 redis"],
  ["the log was made anew", WHOLE, { ...STREAMS, drops: "tuesday", last: 20 }, "recover since 5000000 log"],
  ["the log went back", WHOLE, { ...STREAMS, last: 6 }, "recover since 5000000 log"],
  ["the log is missing", WHOLE, { ...STREAMS, drops: "", last: 0 }, "recover since 5000000 log"],
  ["the jobs went back", WHOLE, { ...STREAMS, lastJob: 2 }, "recover since 5000000"],
  ["the jobs are gone", WHOLE, { ...STREAMS, fanout: "tuesday" }, "recover since 5000000"],
  [
    "Redis and the log",
    { ...WHOLE, redis: "other" },
    { ...STREAMS, drops: "tuesday" },
    "recover since 5000000 redis log",
  ],
])("%s: data may be missing until it is recovered, which is then recorded", async (_name, held, streams, recovered) => {
  const { detector, trace, open } = scene({ held, streams });
  await eventually(() => trace.length === 2, "it begins");
  expect([trace, detector.maybeLost()]).toEqual([["look", recovered], true]);
  open();
  await eventually(() => !detector.maybeLost(), "it is recovered");
  expect(trace.slice(2, 4)).toEqual([
    `recovered 9000000 ${streams.drops}`,
    recovered.replace("recover since 5000000", "observed").concat(" 3"),
  ]);
  await detector.close();
});

test("a record of an older version is no loss of the log", async () => {
  const { detector, trace } = scene({ held: { ...WHOLE, log: undefined } });
  await eventually(() => trace.length >= 2, "it looks");
  expect([trace.slice(0, 2), detector.maybeLost()]).toEqual([["look", "recorded 9000000 monday"], false]);
  await detector.close();
});

const NO_RECORD: IdentityRecord = { redis: "none", from: Number.POSITIVE_INFINITY, log: undefined, acked: 0 };

// Invariant 5.
test("at a first start nothing counts as lost: the log is filled beside pages that are whole, then the record is written", async () => {
  const { detector, trace } = scene({ held: NO_RECORD });
  await eventually(() => trace.includes("recorded 9000000 monday"), "it records");
  expect([trace.slice(0, 3), detector.maybeLost()]).toEqual([["look", "fill", "recorded 9000000 monday"], false]);
  await detector.close();
});

// Invariant 5.
test("while the upstreams do not say whether there is a history, nothing is recorded, and nobody works on the log", async () => {
  let answers = false;
  const beginFirstFill = async (): Promise<void> => {
    if (!answers) throw new Error("away");
  };
  const { detector, trace } = scene({ held: NO_RECORD, beginFirstFill });
  let isChecked = false;
  void detector.checked.then(() => {
    isChecked = true;
  });
  await eventually(() => trace.length >= 4, "it looks again");
  expect([new Set(trace), detector.maybeLost(), isChecked]).toEqual([new Set(["look", "fill"]), false, false]);
  answers = true;
  await eventually(() => trace.includes("recorded 9000000 monday"), "they answer");
  await detector.checked;
  await detector.close();
});

// Invariant 5.
test("when the log and Redis are lost at once, the log is filled as at a first start", async () => {
  const { detector, trace, world } = scene({ held: WHOLE });
  await eventually(() => trace.includes("recorded 9000000 monday"), "it knows the log");
  world.held = NO_RECORD;
  world.streams = { ...STREAMS, drops: "tuesday" };
  await eventually(() => trace.includes("recorded 9000000 tuesday"), "it records the new one");
  expect(trace.filter((step) => /fill|recover /.test(step))).toEqual(["fill of another log"]);
  expect(detector.maybeLost()).toBe(false);
  await detector.close();
});

test("a backlog that was read while the log was replaced is not recorded", async () => {
  const { detector, trace, world } = scene({ held: WHOLE, inCharge: false });
  await detector.close();
  const marks = [STREAMS, { ...STREAMS, drops: "tuesday" }];
  const records: string[] = [];
  const second = new LossDetector({
    identity: { read: async () => world.held, record: async ({ log }) => void records.push(log.drops) },
    readLogState: async () => marks.shift() ?? { ...STREAMS, drops: "tuesday" },
    log: silent,
    recovery: {
      lease: { hold: async () => true, release: async () => undefined },
      readBacklog: async () => ({ start: 9_000_000, acked: 7 }),
      readUnapplied: async () => ({ start: 9_000_000, acked: 7, waiting: [] }),
      beginFirstFill: async () => undefined,
      recover: async () => {
        records.push("recover");
        return { events: 0, setAside: [] };
      },
      observe: () => undefined,
    },
  });
  await eventually(() => records.length >= 2, "the next look finds it");
  expect(records.slice(0, 2)).toEqual(["recover", "tuesday"]);
  expect(trace).not.toContain("recorded");
  await second.close();
});

test("a recovery of Redis begins once no process writes to the former server, one of the log at once", async () => {
  const cases: readonly [IdentityRecord, LogState, string[]][] = [
    [{ ...WHOLE, redis: "other" }, STREAMS, ["look", "closing"]],
    [WHOLE, { ...STREAMS, last: 6 }, ["look", "recover since 5000000 log"]],
  ];
  for (const [held, streams, begun] of cases) {
    const { detector, trace, open } = scene({ held, streams, leaveMs: DAY });
    await eventually(() => trace.length > 0, "it looks");
    trace.push("closing");
    open();
    await detector.close();
    expect(trace.slice(0, 2)).toEqual(begun);
  }
});

test("a process without the lease only looks, and knows that data may be missing", async () => {
  const { detector, trace } = scene({ held: { ...WHOLE, redis: "other" }, inCharge: false });
  await eventually(() => detector.maybeLost(), "it knows");
  expect(trace).toEqual(["look"]);
  await detector.close();
});

test("after a lost connection data may be missing until the next look", async () => {
  const { detector, trace } = scene({ held: WHOLE });
  await eventually(() => trace.length > 0, "it looks");
  detector.suspect();
  expect(detector.maybeLost()).toBe(true);
  await eventually(() => !detector.maybeLost(), "the next look");
  await detector.close();
});

// Invariant 1.
test("a redriven job waits for the record for seconds, also where the clock goes back meanwhile", async () => {
  const { detector, trace } = scene({ held: WHOLE });
  await eventually(() => trace.includes("recorded 9000000 monday"), "it records");
  const now = Date.now;
  Date.now = () => now() - 3_600_000;
  try {
    await detector.untilCovered(9_000_000, new AbortController().signal);
  } finally {
    Date.now = now;
  }
  await detector.close();
}, 20_000);

// Invariant 5.
test("what a recovery has set aside is in the record until the log is applied up to it", async () => {
  const aside = { kind: "author", user: "anna", seq: 9, at: 5_000 } as const;
  let held: IdentityRecord = { ...WHOLE, redis: "other" };
  let backlog = { start: 4_000, acked: 8 };
  let waiting: readonly WaitingEvent[] = [];
  const detector = new LossDetector({
    identity: {
      read: async () => held,
      record: async ({ backlog: { start, acked }, log }) => {
        held = { redis: "same", from: start, log: JSON.parse(JSON.stringify(log)), acked };
      },
    },
    readLogState: async () => STREAMS,
    log: silent,
    recovery: {
      lease: { hold: async () => true, release: async () => undefined },
      readBacklog: async () => backlog,
      readUnapplied: async () => ({ ...backlog, waiting }),
      beginFirstFill: async () => undefined,
      recover: async () => ({ events: 1, setAside: [aside] }),
      observe: () => undefined,
    },
  });
  await eventually(() => held.log?.setAside?.length === 1, "it is recorded");
  await eventually(() => !detector.maybeLost() && detector.affected().length === 1, "only its homes may lack it");
  // Its jobs are older than the time.
  backlog = { start: 4_500, acked: 9 };
  await eventually(() => held.from === 4_500, "the next look");
  expect(held.log?.setAside).toEqual([aside]);
  waiting = [{ consumer: "planner", seq: 9, at: 5_000, drop: "late", affected: { kind: "author", user: "anna" } }];
  backlog = { start: 6_000, acked: 9 };
  await eventually(() => held.from === 6_000, "the next look");
  expect(held.log?.setAside).toEqual([aside]);
  waiting = [];
  await eventually(() => detector.affected().length === 0, "nothing is missing any more");
  await detector.close();
});
