import { expect, test } from "@jest/globals";
import { beginFill, startFill } from "../../src/consistency/fill/fill.js";
import { openFills } from "../../src/consistency/fill/index.js";
import type { TimeRange } from "../../src/consistency/reconcile/reconcile.js";
import { REPETITION_MS } from "../../src/contracts/times.js";
import { AppError } from "../../src/kernel/errors.js";
import type { Logger } from "../../src/kernel/logger.js";
import { HOUR } from "../../src/kernel/time.js";
import { fillCheck } from "../../src/operators/doctor/index.js";
import {
  createFillStore,
  fillAsText,
  isFilled,
  type LogFill,
  windowsOf,
} from "../../src/state/messages/log-fill.redis.js";
import type { State } from "../../src/state/state.redis.js";
import type { Upstreams } from "../../src/upstreams/upstreams.grpc.js";
import { eventually } from "../support/eventually.js";
import { redisOfFile } from "../support/redis-of-file.js";

const redis = redisOfFile();
const LOG = "2026-01-01T00:00:00Z";
const UNTIL = Date.now();
const RANGE = { since: UNTIL - 5 * HOUR, until: UNTIL };
/** The hours, the newest first, and then the time of the fill itself. */
const HOURS = [0, 1, 2, 3, 4].map((hours) => UNTIL - (hours + 1) * HOUR);

interface How {
  readonly reconcile?: (range: TimeRange) => Promise<void>;
  readonly created?: () => string;
  readonly isLost?: () => boolean;
}

const said: string[] = [];
const log = { info: (_: object, text: string) => void said.push(text), warn: () => undefined } as unknown as Logger;

/** A process that fills, and the windows it has read, by their beginnings. */
function filler({ reconcile = async () => undefined, created = () => LOG, isLost = () => false }: How = {}) {
  const store = createFillStore(redis.scripts);
  const read: number[] = [];
  const unlogged: (boolean | undefined)[] = [];
  const fill = startFill({
    ...{ store, isLost, log, rate: 1_000_000, readLog: async () => created() },
    readUnapplied: async () => ({ start: Number.POSITIVE_INFINITY, waiting: [] }),
    reconcile: async (range, options) => {
      expect(options).toMatchObject({ silent: true });
      await reconcile(range);
      read.push(range.since);
      unlogged.push(options?.unlogged);
      return { changes: 3, admitted: 3 };
    },
  });
  return { ...fill, read, unlogged, store };
}

const begin = () =>
  beginFill({ store: createFillStore(redis.scripts), log }, { why: "first", created: LOG, range: RANGE });

// Invariant 5.
test("while the posts service does not tell whether there is a history, the log names it once", async () => {
  const told: object[] = [];
  const changedDrops = async () => {
    throw new AppError("unavailable", "ListDrops: no connection");
  };
  const { beginFirstFill } = openFills(
    {
      state: { fill: createFillStore(redis.scripts) } as unknown as State,
      upstreams: () => ({ changedDrops }) as unknown as Upstreams,
      log: { ...log, warn: (fields: object) => void told.push(fields) } as unknown as Logger,
    },
    {
      readLogState: async () => ({ drops: "2026-02-02T00:00:00Z", last: 0, fanout: "", lastJob: 0, redis: undefined }),
      readBacklog: async () => ({ start: 0, acked: 0 }),
    },
  );
  for (let round = 0; round < 2; round++)
    await expect(beginFirstFill({ replaced: false })).rejects.toMatchObject({ code: "unavailable" });
  expect(told).toEqual([{ upstream: "posts", error: expect.stringContaining("ListDrops") }]);
});

const filled = (store: ReturnType<typeof createFillStore>) =>
  eventually(async () => {
    const fill = await store.read();
    return fill !== undefined && isFilled(fill);
  }, "the log is filled");

test("a log is filled once, newest first, and at the end with the time that this took", async () => {
  await begin();
  const doctor = fillCheck([redis.broker.url]);
  expect(await doctor()).toMatchObject([{ what: "log DROPS", says: expect.stringMatching(/^first fill: 0 %/) }]);
  const { read, store, close, current } = filler();
  await filled(store);
  await close();
  expect(await doctor()).toMatchObject([{ state: "ok", says: "first fill: done, 18 changes" }]);
  await redis.raw.del("timeline:x:fill");
  expect(await doctor()).toEqual([]);
  await store.begin(current() as LogFill);
  expect(read.slice(0, -1)).toEqual(HOURS);
  expect(read.at(-1)).toBeGreaterThan(UNTIL - HOUR / 2);
  expect(await redis.raw.pttl("timeline:x:fill")).toBeGreaterThan(0);
  expect(said.at(-1)).toBe("the first fill of the log is done");
  const again = filler();
  await eventually(() => again.current() !== undefined, "it looks");
  await again.close();
  expect(again.read).toEqual([]);
});

test.each([
  ["short", 0, true],
  ["longer than NATS tells repetitions", REPETITION_MS, false],
])("what came during a fill that was %s is admitted once", async (_, ms, unlogged) => {
  const begun: LogFill = { id: "i", why: "first", log: LOG, ...RANGE, started: Date.now() - ms, done: new Map() };
  const filling = filler();
  await filling.store.begin(begun);
  await filled(filling.store);
  await filling.close();
  // Without a comparison NATS alone keeps an event from being admitted again.
  expect(filling.unlogged.at(-1)).toBe(unlogged);
});

test("several processes share the windows, and each is read once", async () => {
  await begin();
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const underWay = new Set<number>();
  const reconcile = async ({ since }: TimeRange): Promise<void> => {
    underWay.add(since);
    await opened;
  };
  const fillers = [filler({ reconcile }), filler({ reconcile }), filler({ reconcile })];
  await eventually(() => underWay.size === 3, "each has a window of its own");
  expect([...underWay].sort((a, b) => b - a)).toEqual(HOURS.slice(0, 3));
  open();
  await filled((fillers[0] as (typeof fillers)[0]).store);
  await Promise.all(fillers.map(({ close }) => close()));
  const read = fillers.flatMap((one) => one.read).filter((since) => since < UNTIL - HOUR / 2);
  expect(read.sort((a, b) => b - a)).toEqual(HOURS);
});

test("a fill goes on where another process has left it, and after a failure of an upstream", async () => {
  await begin();
  let calls = 0;
  const reconcile = async (): Promise<void> => {
    if (++calls === 3) throw new Error("away");
  };
  const first = filler({ reconcile });
  await eventually(() => calls === 3, "it fails");
  await first.close();
  const second = filler();
  await filled(second.store);
  await second.close();
  expect([first.read, second.read.slice(0, -1)]).toEqual([HOURS.slice(0, 2), HOURS.slice(2)]);
});

test("a Redis that is emptied meanwhile repeats no window", async () => {
  await begin();
  const reconcile = async ({ since }: TimeRange): Promise<void> => {
    if (since === HOURS[2]) await redis.raw.flushall();
  };
  const { read, store, close } = filler({ reconcile });
  await filled(store);
  await close();
  expect(read.filter((since) => since === HOURS[0])).toHaveLength(1);
  expect(new Set(read).size).toBe(windowsOf((await store.read()) as never));
});

test("nothing is filled while a recovery runs, nor a log that is gone", async () => {
  await begin();
  let created = LOG;
  let isLost = true;
  const { read, store, close, current } = filler({ created: () => created, isLost: () => isLost });
  await eventually(() => current() !== undefined, "it looks");
  created = "2026-01-02T00:00:00Z";
  isLost = false;
  await eventually(() => current() === undefined, "it looks at the other log");
  expect([read, (await store.read())?.done.size]).toEqual([[], 0]);
  await close();
});

test("a line says how far a fill is, how many changes it has read, and about how long it takes yet", () => {
  const started = Date.now() - 60_000;
  const fill: LogFill = {
    id: "i",
    why: "first",
    log: LOG,
    ...RANGE,
    started,
    done: new Map([
      [0, 70],
      [1, 50],
    ]),
  };
  expect(fillAsText(fill)).toBe(
    `first fill: 33 %, 120 changes, back to ${new Date(HOURS[1] as number).toISOString()}, about 120 s left`,
  );
  expect(fillAsText({ ...fill, why: "lost", done: new Map() })).toMatch(
    /^fill after a loss: 0 %, 0 changes, back to \S+$/,
  );
});
