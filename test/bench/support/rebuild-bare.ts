/**
 * The bare client of the benchmark `rebuild`: its own process, as the service is. Its arguments are the address of the
 * posts service and, for the bound, the address of the users service and the URL of a Redis.
 */
import { on } from "node:events";
import { credentials, Metadata } from "@grpc/grpc-js";
import { Redis } from "ioredis";
import { type Drop, type GetDropsByUserIDResponse, PostServiceClient } from "../../../src/gen/avion/posts.js";
import { type GetFollowingListResponse, UserServiceClient } from "../../../src/gen/avion/users.js";
import { mapLimited } from "../../../src/kernel/concurrency.js";
import { startTelemetry } from "../../../src/telemetry/exporters.js";
import { histogram } from "../../../src/telemetry/meters.js";
import type { BareCalls } from "./rebuild-shared.js";
import { check } from "./result.js";

const PATIENCE_MS = 300_000;
const HOME_ENTRIES = 1_000;
const PAGE = 20;

const [postsAddress = "", usersAddress, redisUrl = ""] = process.argv.slice(2);
const client = new PostServiceClient(postsAddress, credentials.createInsecure());
if (usersAddress) startTelemetry(process.env, "");
const owed = usersAddress === undefined ? undefined : owedTo(new Redis(redisUrl), usersAddress);

process.send?.("ready");
for await (const [{ authors, readers, calls, limit, atOnce }] of on(process, "message") as AsyncIterable<[BareCalls]>) {
  const ask = (author: string): Promise<GetDropsByUserIDResponse> =>
    new Promise((resolve, reject) => {
      const deadline = Date.now() + PATIENCE_MS;
      const request = { user_id: author, limit, max_id: "", before: 0, reader_id: "", without_direct: false };
      client.getDropsByUserId(request, new Metadata(), { deadline }, (error, answer) =>
        error ? reject(error) : resolve(answer),
      );
    });
  const begun = performance.now();
  const take = await owed?.(readers, calls, authors.length);
  await mapLimited(Array.from({ length: calls }), atOnce, async (_, number) => {
    const started = performance.now();
    const answer = await ask(authors[number % authors.length] as string);
    // Without a bound no answer is kept: those of all calls would fill the heap.
    take?.answer(number, answer, performance.now() - started);
  });
  await take?.ended();
  process.send?.(performance.now() - begun);
}

/**
 * What a cold read owes its reader beside the calls: whom the reader follows is asked first; each call is measured; the
 * newest drops are written, looked up among the deleted ones, and read as a page.
 */
function owedTo(redis: Redis, usersAddress: string) {
  const users = new UserServiceClient(usersAddress, credentials.createInsecure());
  const page = (user_id: string, page_token: string): Promise<GetFollowingListResponse> =>
    new Promise((resolve, reject) => {
      const request = { user_id, page_size: 1_000, page_token };
      users.getFollowingList(request, (error, answer) => (error ? reject(error) : resolve(answer)));
    });
  const askFollowing = async (user: string, expected: number): Promise<void> => {
    let found = 0;
    let token = "";
    do {
      const { user_ids, next_page_token } = await page(user, token);
      found += user_ids.length;
      token = next_page_token;
    } while (token !== "");
    check(found === expected, "every list of the bound is whole");
  };
  const callTime = histogram("bare_call_seconds", "Time a call took", [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5]);
  let homes = 0;
  const finish = async (drops: Drop[]): Promise<void> => {
    drops.sort((a, b) => b.created_at - a.created_at);
    const newest = drops.slice(0, HOME_ENTRIES);
    const home = `bare-home-${homes++}`;
    await redis.zadd(home, ...newest.flatMap(({ created_at, drop_id }) => [`${created_at}`, drop_id]));
    await redis.smismember("bare-deleted", ...newest.map(({ drop_id }) => drop_id));
    const page = await redis.zrevrange(home, 0, PAGE - 1);
    check(page.length === PAGE, "every page of the bound is whole");
  };
  return async (readers: readonly string[], calls: number, followings: number) => {
    const callsAReader = Math.ceil(calls / readers.length);
    await Promise.all(readers.map((user) => askFollowing(user, followings)));
    const finished: Promise<void>[] = [];
    const homesUnderWay = new Map<number, { left: number; readonly drops: Drop[] }>();
    return {
      answer(number: number, { drops }: GetDropsByUserIDResponse, ms: number): void {
        callTime.record(ms / 1_000, { method: "GetDropsByUserID", result: "OK" });
        const reader = Math.floor(number / callsAReader);
        const left = Math.min(callsAReader, calls - reader * callsAReader);
        const home = homesUnderWay.get(reader) ?? { left, drops: [] };
        homesUnderWay.set(reader, home);
        for (const drop of drops) home.drops.push(drop);
        if (--home.left > 0) return;
        finished.push(finish(home.drops));
        homesUnderWay.delete(reader);
      },
      ended: () => Promise.all(finished),
    };
  };
}
