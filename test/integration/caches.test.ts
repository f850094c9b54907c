import { EventEmitter } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "@jest/globals";
import { createAtprotoSource } from "../../src/analysis/sources/atproto.http.js";
import { Gaps } from "../../src/bridge/bridge.js";
import { CACHE_BYTES, type CacheName } from "../../src/contracts/caches.js";
import { Returns } from "../../src/delivery/verdict.js";
import { FollowerCache } from "../../src/fanout/plan.js";
import { AppError } from "../../src/kernel/errors.js";
import { encodeId, MAX_ID_BYTES } from "../../src/kernel/ids.js";
import { readClocks } from "../../src/kernel/time.js";
import { createIsAffected } from "../../src/reads/affected.js";
import { createOpenAmong } from "../../src/reads/open-drops.js";
import { createBylines } from "../../src/state/entries/bylines.redis.js";
import { createListReaders } from "../../src/state/entries/list-judge.js";
import { PageCache } from "../../src/state/entries/page-cache.js";
import { createHiddenStore } from "../../src/state/hidden/hidden.redis.js";
import { createRelationWriter } from "../../src/state/hidden/relations.redis.js";
import { createKeyLists } from "../../src/state/key-lists.js";
import { packKeys } from "../../src/state/keys.js";
import type { TokenBucket } from "../../src/state/limits/source-tokens.redis.js";
import { createDropReads } from "../../src/upstreams/drop-reads.js";
import { createProbe, Turns } from "../../src/upstreams/faults.js";
import { connectUpstreams } from "../../src/upstreams/upstreams.grpc.js";
import { createIsHot } from "../../src/users/prepare.js";
import { NOBODY_ERASED } from "../support/redis.js";

const MIB = 1_024 * 1_024;

let count = 0;
/** Returns an id of the greatest length, as a text of its own that V8 stores with two bytes a character. */
const longId = (): string =>
  Buffer.from(`${(count++).toString(36).padStart(10, "0")}ł`.padEnd(MAX_ID_BYTES - 1, "x")).toString();

/** A copy that shares no memory. */
const own = (text: string): string => Buffer.from(text).toString();

type Fill = (bytes: number) => unknown;

/** Each fills a cache through its owner with more than `bytes`, and returns the owner. */
const FILLS: Readonly<Record<CacheName, Fill>> = {
  affectedReaders: async (bytes) => {
    const affected = [{ kind: "reader" as const, user: "nobody", seq: 1, at: 0 }];
    const isAffected = createIsAffected(
      () => affected,
      async () => ({ ids: [], next: "" }),
    );
    await times(bytes, 300, () => isAffected(longId(), Number.POSITIVE_INFINITY));
    return isAffected;
  },
  answeredCalls: (bytes) => {
    const probe = createProbe({ note: () => undefined }, { most: 1 });
    return times(bytes, 4_000, () => {
      const request = Buffer.alloc(4_000, "x").toString();
      probe.remember(longId(), async () => request);
    }).then(() => probe);
  },
  authorPageSizes: async (bytes) => {
    const reads = createDropReads({
      leaveOut: () => undefined,
      unordered: () => undefined,
      isTooLarge: () => true,
      isInvalidArgument: () => false,
    })(async ({ limit }) => {
      if (limit > 8) throw new Error("too large");
      return { drops: [], end: true };
    });
    await times(bytes, 300, () => reads({ author: longId(), limit: 16, below: undefined, reader: undefined }));
    return reads;
  },
  bylines: async (bytes) => {
    const text = () => `${encodeId(longId())},${encodeId(longId())}`;
    const command = async (_name: string) => Array.from({ length: 100 }, text);
    const bylines = createBylines({ command: command as never }, { erased: NOBODY_ERASED, ttlOf: () => 0 });
    await times(bytes, 100 * 600, () => bylines.bylinesOf("timeline:local", Array.from({ length: 100 }, longId)));
    return bylines;
  },
  standingBylines: async (bytes) => {
    const text = () => `${encodeId(longId())},,${encodeId(longId())}`;
    const command = async (_name: string) => Array.from({ length: 100 }, text);
    const bylines = createBylines({ command: command as never }, { erased: NOBODY_ERASED, ttlOf: () => 0 });
    const drops = () => Array.from({ length: 100 }, longId);
    await times(bytes, 100 * 600, () => bylines.standingBylinesOf("timeline:home:ada", drops()));
    return bylines;
  },
  followers: async (bytes) => {
    const cache = new FollowerCache(async () => ({
      ids: Array.from({ length: 1_000 }, longId),
      next: "",
      total: 1_000,
    }));
    await times(bytes, 1_000 * 300, async () => {
      const pages = cache.pages({ author: longId(), generation: "1", includeAuthor: false });
      for await (const page of pages) expect(page.only).toBe(true);
    });
    return cache;
  },
  hiddenUsers: async (bytes) => {
    const fields = () => Array.from({ length: 1_000 }, () => [encodeId(longId()), "all"]).flat();
    const run = async () => ["complete", 1_000, 1, fields()];
    const store = createHiddenStore({ run } as never, undefined as never, { among: async () => new Set() }, 1);
    await times(bytes, 1_000 * 300, () => store.held(longId()));
    return store;
  },
  hotUsers: async (bytes) => {
    const isHot = createIsHot(10);
    await times(bytes, 300, () => isHot(longId()));
    return isHot;
  },
  interruptedReads: interruptedReads,
  keyLists: async (bytes) => {
    const nodes = ["a", "b", "c"];
    const slots = {
      isCluster: true,
      slotOf: (key: string) => key.length % 3,
      nodeAt: (slot: number) => nodes[slot] as string,
    };
    const lists = createKeyLists(slots);
    await times(bytes, 500 * 500, () => {
      const keys = packKeys(Array.from({ length: 500 }, () => encodeId(longId())));
      for (const prefix of ["timeline:home:", "timeline:x:hidden:"])
        lists.byNode(prefix, lists.merged([{ keys, items: [] }]));
    });
    return lists;
  },
  leadingCalls: async (bytes) => {
    const turns = new Turns(async () => "answered");
    const failure = () => new AppError("unavailable", longId(), { cause: new Error(longId()), subject: longId() });
    await times(bytes, 1_000, () =>
      turns.take("Get", longId(), () => Promise.reject(failure())).catch(() => undefined),
    );
    return turns;
  },
  leftOutItems: async (bytes) => {
    const tls = { ca: undefined, cert: undefined, key: undefined };
    const upstreams = connectUpstreams({ userServiceAddr: "127.0.0.1:1", postServiceAddr: "127.0.0.1:1", tls });
    await times(bytes, 300, () => upstreams.leaveOut("GetFollowersList", longId()));
    return upstreams;
  },
  listReaders: async (bytes) => {
    const ids = Array.from({ length: 20 }, longId);
    const readers = createListReaders(async () => ({
      member_ids: ids.map(own),
      followed_ids: ids.map(own),
      owner_id: "ada",
    }));
    await times(bytes, 4_000, () => readers.read({ owner: longId(), list: longId() }, Number.POSITIVE_INFINITY));
    return readers;
  },
  openDrops: async (bytes) => {
    const none = { following: async () => [], drops: async () => undefined };
    const sources = {
      ...none,
      drops: async (_asked: unknown, _limits: unknown, answered: (...answer: unknown[]) => unknown) =>
        answered({}, { drops: [{ drop_id: longId() }], next: undefined }),
    };
    const openAmong = createOpenAmong(() => sources as never);
    const entry = { score: 1, drop: "unknown", by: { author: "ada" } };
    await times(bytes, 300, () => openAmong("ada", [entry], Number.POSITIVE_INFINITY));
    return openAmong;
  },
  producers: async (bytes) => {
    const gaps = new Gaps();
    await times(bytes, 300, () => gaps.note(longId(), 1, readClocks()));
    return gaps;
  },
  returns: async (bytes) => {
    const returns = new Returns();
    await times(bytes, 300, () => returns.delayMs(longId(), 0));
    return returns;
  },
  seenPages: async (bytes) => {
    const changes = {
      ...{ isOn: () => true, follow: async () => true, upToDate: async () => true },
      announcements: new EventEmitter<never>(),
    };
    const cache = new PageCache({ changes, nodeOf: () => "", maxBytes: MIB, ttlMs: 1_000_000 });
    const incomplete = async () => ({ stored: { floor: undefined, entries: [], areAlive: true }, keys: undefined });
    await times(bytes, 300, () => cache.fill(longId(), ["key"], incomplete));
    return cache;
  },
  unansweredRelations: async (bytes) => {
    const hidden = { fill: () => Promise.reject(new AppError("unavailable", "GetHidden")) };
    const writer = createRelationWriter({ scripts: {}, hidden, sources: {} } as never, 1);
    await times(bytes, 300, () => writer.learn([longId()]));
    return writer;
  },
};

/** Calls `fill`, which adds at least `bytesEach`, until more than twice the bound was added. */
async function times(bytes: number, bytesEach: number, fill: () => unknown): Promise<void> {
  for (let added = 0; added < 2 * bytes; added += bytesEach) await fill();
}

/** Every second page fails: each read of an account is kept with its first page. */
async function interruptedReads(bytes: number): Promise<unknown> {
  const item = { indexedAt: "2026-01-01T00:00:00Z", record: { createdAt: "2026-01-01T00:00:00Z" } };
  let posts = 0;
  const server = createServer((_request, response) => {
    const feed = Array.from({ length: 100 }, () => {
      const uri = `at://did:plc:ada/app.bsky.feed.post/${posts++}`;
      return { post: { uri, author: { did: "did:plc:ada" }, ...item } };
    });
    response.end(JSON.stringify({ feed, cursor: "c".repeat(4_000) }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  let calls = 0;
  const take = async (): Promise<void> => {
    if (calls++ % 2 === 1) throw new AppError("unavailable", "there is no token left");
  };
  const bucket = { take, tryTake: async () => false, hold: async () => undefined, left: async () => 0 } as TokenBucket;
  const source = createAtprotoSource({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, bucket });
  const { signal } = new AbortController();
  await times(bytes, 20_000, async () => {
    const read = source.posts(longId(), { user: "ada", limit: 500, signal })[Symbol.asyncIterator]();
    await expect(read.next()).rejects.toThrow("no token left");
  });
  server.close();
  server.closeAllConnections();
  return source;
}

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

function heap(): number {
  collect();
  return process.memoryUsage().heapUsed;
}

/** Other things of the process, such as code compiled meanwhile, take less. */
const NOISE = 2 * MIB;

// Invariant 11.
test.each(Object.entries(FILLS))(
  "the cache %s takes no more than its bound, with the longest ids",
  async (name, fill) => {
    const bound = CACHE_BYTES[name as CacheName];
    const before = heap();
    const owner = await fill(bound);
    const taken = heap() - before;
    expect(owner).toBeDefined();
    expect(taken).toBeLessThan(bound + NOISE);
    // It was filled: the estimate is at most some times what an entry takes.
    expect(taken).toBeGreaterThan(bound / 5 - NOISE);
  },
);

test("docs/capacity.md lists each cache with its bound", () => {
  const rows = readFileSync("docs/capacity.md", "utf8").matchAll(/^\| `(\w+)` \| [^|]+\| [^|]+\| (\d+) MiB \|$/gm);
  const documented = Object.fromEntries([...rows].map(([, name, mib]) => [name, Number(mib) * MIB]));
  expect(documented).toEqual(CACHE_BYTES);
});
