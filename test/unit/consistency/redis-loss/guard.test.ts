import { expect, test } from "@jest/globals";
import { startGuard } from "../../../../src/consistency/redis-loss/guard.js";
import type { HeldNote, LogMark } from "../../../../src/consistency/redis-loss/ports.js";
import { silent } from "../../../../src/kernel/logger.js";
import { eventually } from "../../../support/facts.js";

const STREAMS: LogMark = { drops: "monday", fanout: "monday", last: 7 };
const WHOLE: HeldNote = { redis: "same", from: 5_000_000, log: STREAMS, acked: 7 };

/** One Redis with its note, the streams, and the only process that makes good for a loss. */
function scene(how: { readonly held: HeldNote; readonly streams?: LogMark; readonly inCharge?: boolean }) {
  const trace: string[] = [];
  const world = { held: how.held, streams: how.streams ?? STREAMS };
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const guard = startGuard({
    continuity: {
      read: async () => {
        trace.push("look");
        return world.held;
      },
      note: async ({ backlog, log, mended }) => {
        trace.push(`${mended ? "mended" : "noted"} ${backlog.start} ${log.drops}`);
        world.held = { redis: "same", from: backlog.start, log, acked: backlog.acked };
      },
    },
    readLogMark: async () => world.streams,
    log: silent,
    mending: {
      lease: { hold: async () => how.inCharge ?? true, release: async () => void trace.push("released") },
      readBacklog: async () => ({ start: 9_000_000, acked: 7 }),
      mend: async ({ since, redis, log, note }) => {
        trace.push(`mend since ${since}${redis ? " redis" : ""}${log ? " log" : ""}${note ? " note" : ""}`);
        await opened;
        return 3;
      },
      observe: ({ redis, log }, events) =>
        trace.push(["observed", redis ? "redis" : "", log ? "log" : "", events].filter(String).join(" ")),
    },
  });
  return { guard, trace, open, world };
}

test("where nothing was lost, how far the log is applied is noted", async () => {
  const { guard, trace } = scene({ held: WHOLE });
  await eventually(() => trace.length >= 2, "it looks and notes");
  expect([trace.slice(0, 2), guard.broken()]).toEqual([["look", "noted 9000000 monday"], false]);
  await guard.close();
  expect(trace.at(-1)).toBe("released");
});

test.each<[string, HeldNote, LogMark, string]>([
  ["Redis lost what it had confirmed", { ...WHOLE, redis: "broken" }, STREAMS, "mend since 5000000 redis"],
  ["the log was made anew", WHOLE, { ...STREAMS, drops: "tuesday", last: 20 }, "mend since 5000000 log"],
  ["the log went back", WHOLE, { ...STREAMS, last: 6 }, "mend since 5000000 log"],
  ["the log is missing", WHOLE, { ...STREAMS, drops: "", last: 0 }, "mend since 5000000 log"],
  ["the jobs are gone", WHOLE, { ...STREAMS, fanout: "tuesday" }, "mend since 5000000"],
  [
    "Redis and the log",
    { ...WHOLE, redis: "broken" },
    { ...STREAMS, drops: "tuesday" },
    "mend since 5000000 redis log",
  ],
])("%s: it is broken until that is made good, and then noted", async (_name, held, streams, mend) => {
  const { guard, trace, open } = scene({ held, streams });
  await eventually(() => trace.length === 2, "it begins");
  expect([trace, guard.broken()]).toEqual([["look", mend], true]);
  open();
  await eventually(() => !guard.broken(), "it is made good");
  expect(trace.slice(2, 4)).toEqual([
    `mended 9000000 ${streams.drops}`,
    mend.replace("mend since 5000000", "observed").concat(" 3"),
  ]);
  await guard.close();
});

test("a log that is lost together with the note is seen by who knew it", async () => {
  const { guard, trace, open, world } = scene({ held: WHOLE });
  await eventually(() => trace.length >= 2, "it knows");
  world.streams = { drops: "tuesday", fanout: "tuesday", last: 1 };
  world.held = { redis: "new", from: Number.POSITIVE_INFINITY, log: undefined, acked: 0 };
  await eventually(() => trace.includes("mend since 0 log note"), "it begins");
  expect(guard.broken()).toBe(true);
  open();
  await eventually(() => !guard.broken(), "it is made good");
  await guard.close();
});

test.each<[string, HeldNote]>([
  ["an empty Redis", { redis: "new", from: Number.POSITIVE_INFINITY, log: undefined, acked: 0 }],
  ["a note of an older version", { ...WHOLE, log: undefined }],
])("%s is no loss of the log", async (_name, held) => {
  const { guard, trace } = scene({ held });
  await eventually(() => trace.length >= 2, "it looks");
  expect([trace.slice(0, 2), guard.broken()]).toEqual([["look", "noted 9000000 monday"], false]);
  await guard.close();
});

test("a backlog that was read while the log was replaced is not noted", async () => {
  const { guard, trace, world } = scene({ held: WHOLE, inCharge: false });
  await guard.close();
  const marks = [STREAMS, { ...STREAMS, drops: "tuesday" }];
  const notes: string[] = [];
  const second = startGuard({
    continuity: { read: async () => world.held, note: async ({ log }) => void notes.push(log.drops) },
    readLogMark: async () => marks.shift() ?? { ...STREAMS, drops: "tuesday" },
    log: silent,
    mending: {
      lease: { hold: async () => true, release: async () => undefined },
      readBacklog: async () => ({ start: 9_000_000, acked: 7 }),
      mend: async () => {
        notes.push("mend");
        return 0;
      },
      observe: () => undefined,
    },
  });
  await eventually(() => notes.length >= 2, "the next look finds it");
  expect(notes.slice(0, 2)).toEqual(["mend", "tuesday"]);
  expect(trace).not.toContain("noted");
  await second.close();
});

test("who is not in charge only looks, and knows that it is broken", async () => {
  const { guard, trace } = scene({ held: { ...WHOLE, redis: "broken" }, inCharge: false });
  await eventually(() => guard.broken(), "it knows");
  expect(trace).toEqual(["look"]);
  await guard.close();
});

test("a link that was lost is in doubt until the next look", async () => {
  const { guard, trace } = scene({ held: WHOLE });
  await eventually(() => trace.length > 0, "it looks");
  guard.doubt();
  expect(guard.broken()).toBe(true);
  await eventually(() => !guard.broken(), "the next look");
  await guard.close();
});
