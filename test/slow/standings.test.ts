import { expect } from "@jest/globals";
import { Standing } from "../../src/gen/avion/users.js";
import { becomes, eventually } from "../support/eventually.js";
import { downIds, pagesDown } from "../support/reader.js";
import { samplesOf } from "../support/scrape.js";
import { type EventStream, openEvents } from "../support/sse.js";
import { testWithStack, withLogs } from "../support/stack.js";
import { openWave, readerName, type Wave } from "../support/wave.js";

const SIZE = { readers: 50, authors: 20, spammers: 10_000 };
const A_SECOND = SIZE.spammers / 60;
const LIMIT = 50;
/** Homes keep all drops of spammers meanwhile. */
const POST_EVERY_MS = 1_000;
/** Calls that the reads of a page make if a copy of Redis is missing. */
const CALLS_OF_READS = ["GetFollowingList", "GetHidden", "GetProfile"];

const readers = Array.from({ length: SIZE.readers }, (_, number) => readerName(number));

// Invariants 5 and 7.
testWithStack(
  "readers and listeners notice nothing of ten thousand suspensions in a minute, but that the drops are gone, and all back afterwards",
  { service: false, slow: true, timeoutMs: 600_000 },
  async (stack) => {
    const { redisServer, natsServer } = stack;
    const urls = { redisUrl: redisServer.url, natsUrl: natsServer.url };
    const wave = await openWave(urls, SIZE, (close) => stack.defer(close));
    const stream = await openEvents(wave.processes.gateway.httpUrl, readers[0] as string);
    stack.defer(() => stream.close());
    await becomes(async () => expect(await spamOf(wave)).toHaveLength(SIZE.spammers), 60_000);
    const had = await spamOf(wave);
    const before = await countsOf(wave);
    const check = async (): Promise<void> => {
      await readWhile(wave, stream, wave.setAll(Standing.SUSPENDED, A_SECOND));
      await becomes(async () => expect(await spamOf(wave)).toEqual([]), 60_000);
      await readWhile(wave, stream, wave.setAll(Standing.ACTIVE, A_SECOND));
      await becomes(async () => expect(await spamOf(wave)).toEqual(had), 60_000);
      expect(await countsOf(wave)).toEqual(before);
    };
    await check().catch((error: unknown) => {
      throw withLogs(error, Object.values(wave.processes));
    });
    expect(await stack.streams.count("DLQ")).toBe(0);
  },
);

/** Reads pages, and posts drops which the stream must have, until some work has ended. */
async function readWhile({ reader, post }: Wave, stream: EventStream, work: Promise<void>): Promise<void> {
  let isOver = false;
  const ended = work.finally(() => {
    isOver = true;
  });
  const posted: string[] = [];
  let nextPost = 0;
  for (let round = 0; !isOver; round++) {
    const user_id = readers[round % readers.length] as string;
    const [home, ...shared] = await Promise.all([
      reader.home(user_id, { limit: LIMIT }),
      reader.local({ user_id, limit: LIMIT }),
      reader.global({ limit: LIMIT }),
    ]);
    expect(home.drop_ids).toHaveLength(LIMIT);
    expect([home, ...shared].map(({ degraded }) => degraded)).toEqual([false, false, false]);
    if (performance.now() < nextPost) continue;
    posted.push(await post(posted.length));
    nextPost = performance.now() + POST_EVERY_MS;
  }
  await ended;
  await eventually(() => posted.every((drop) => stream.drops().includes(drop)), "the stream has every drop");
  expect(new Set(stream.events.map(({ event }) => event))).toEqual(new Set(["new_drop"]));
}

/** The drops of spammers in all homes. */
async function spamOf({ reader, spam }: Wave): Promise<string[]> {
  const all = new Set(spam);
  const drops: string[] = [];
  for (const user of readers) {
    const pages = await pagesDown((query) => reader.home(user, query), { limit: 100 });
    expect(pages.every(({ degraded }) => !degraded)).toBe(true);
    drops.push(...downIds(pages).filter((drop) => all.has(drop)));
  }
  return drops;
}

/** Numbers of calls that reads make of the upstreams, and of pages that were not read from the stored timeline. */
async function countsOf({ processes: { api, upstreams } }: Wave): Promise<Record<string, number>> {
  const scrape = async (url: string) => samplesOf(await (await fetch(`${url}/metrics`)).text());
  const calls = (await scrape(upstreams.httpUrl)).filter(
    ({ name, labels }) =>
      name === "timeline_grpc_requests_total" && CALLS_OF_READS.some((method) => labels["method"]?.endsWith(method)),
  );
  const reads = (await scrape(api.httpUrl)).filter(
    ({ name, labels }) => name === "timeline_reads_total" && labels["outcome"] !== "hit",
  );
  return Object.fromEntries([...calls, ...reads].map(({ labels, value }) => [JSON.stringify(labels), value]));
}
