import { beforeAll, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { samplesOf } from "../support/scrape.js";
import {
  callsUpwards,
  type Followed,
  filesOf,
  filesPassed,
  follow,
  functionsMissed,
  readDrawing,
  stepsMissed,
  type Work,
} from "../support/way.js";

const MAX_FILES = { cached: 9, fromRedis: 12 };
const READS = 20;
/** Pure helpers, shared facts, telemetry, samples of the servers and the log: not drawn, as docs/architecture.md says. */
const NOT_DRAWN =
  /^(kernel|contracts|gen)\/|^state\/(keys|kinds|key-lists|fenced|erased\/(erased|erasures|without-erased|bucket)|hidden\/hidden|standing\/[a-z.]+|fences\/types|big-authors\/pulled|entries\/removal-notes)|^telemetry\/|(^|\/)observe$|^reads\/positions$|^platform\/(redis\/servers|nats\/depths)$/;

/** The second leg is passed only where the page is not cached. */
const drawn = readDrawing("The way of a read");
const cached = drawn.filter(({ leg }) => leg === 0);
const ways: Record<"cached" | "fromRedis", Followed> = {} as never;

const followReads = (limitOf: (read: number) => number): Promise<Followed> =>
  follow({
    ...{ drawn, roles: "api", times: READS },
    open: async ({ world, defer }, { grpcAddress, httpUrl }): Promise<Work> => {
      for (let number = 0; number < 100; number++)
        world.post({ drop_id: `d${number}`, user_id: "bob", visibility: "public", created_at: 1_000 + number });
      const reads = openReader(grpcAddress);
      defer(() => reads.close());
      const isCached = async (): Promise<boolean> => {
        expect((await reads.home("bob", { limit: 100 })).degraded).toBe(false);
        const samples = samplesOf(await (await fetch(`${httpUrl}/metrics`)).text());
        return samples.some(({ name, labels, value }) => {
          return name === "timeline_read_cache_total" && labels["event"] === "hit" && value > 0;
        });
      };
      await eventually(isCached, "pages are cached");
      let count = 0;
      const read = async (times: number): Promise<void> => {
        for (let index = 0; index < times; index++) {
          const limit = limitOf(count++);
          expect((await reads.home("bob", { limit })).drop_ids).toHaveLength(limit);
        }
      };
      // A page is cached from its second read on.
      await read(4);
      return read;
    },
  });

beforeAll(async () => {
  ways.cached = await followReads(() => 10);
  // Each page is asked for once.
  ways.fromRedis = await followReads((read) => read + 1);
}, 180_000);

test("the drawing has at most 9 files for a cached page, and 12 for one from Redis", () => {
  expect(filesOf(cached).length).toBeGreaterThan(5);
  expect(filesOf(cached).length).toBeLessThanOrEqual(MAX_FILES.cached);
  expect(filesOf(drawn).length).toBeLessThanOrEqual(MAX_FILES.fromRedis);
});

test("a cached page passes the files of the first leg and no others, one from Redis those of both", () => {
  expect(filesPassed(ways.cached, cached, READS, NOT_DRAWN)).toEqual(filesOf(cached).sort());
  expect(filesPassed(ways.fromRedis, drawn, READS, NOT_DRAWN)).toEqual(filesOf(drawn).sort());
});

test("each passes the functions of its leg, in the drawn order", () => {
  const notCached = drawn.filter(({ leg }) => leg === 1);
  for (const [way, leg] of [[ways.cached, cached] as const, [ways.fromRedis, notCached] as const]) {
    expect(functionsMissed(way, leg, READS)).toEqual([]);
    expect(stepsMissed(way, leg)).toEqual([]);
  }
});

test("files are entered from above: a drawn file never calls one that is drawn above it", () => {
  expect(callsUpwards(ways.cached, cached)).toEqual([]);
  expect(callsUpwards(ways.fromRedis, drawn)).toEqual([]);
});
