import { rm } from "node:fs/promises";
import { join } from "node:path";
import { credentials } from "@grpc/grpc-js";
import type { GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { type Standing, UserServiceClient, UserServiceService } from "../../src/gen/avion/users.js";
import { chunked, mapLimited } from "../../src/kernel/concurrency.js";
import { freePort } from "../../src/sandbox/brokers/index.js";
import { type Api, openApi } from "./api.js";
import { temporaryFolder } from "./brokers.js";
import { eventually } from "./eventually.js";
import { callsOf } from "./grpc.js";
import { postgresPrograms, startPostgres } from "./postgres.js";
import { openReader, type Reader } from "./reader.js";
import { type Service, startService } from "./service.js";

/** Numbers of users. Each spammer has one follower among the readers, and one drop. */
export interface WaveSize {
  readonly readers: number;
  readonly authors: number;
  readonly spammers: number;
}

interface Urls {
  readonly redisUrl: string;
  readonly natsUrl: string;
}

/** A world with readers, whose homes and local have drops of authors and of spammers; each role is in a process. */
export interface Wave {
  readonly processes: Readonly<Record<"upstreams" | "fanout" | "api" | "gateway", Service>>;
  readonly api: Api;
  readonly reader: Reader;
  /** Drops of spammers, in the order of their numbers. */
  readonly spam: readonly string[];
  post(author: number): Promise<string>;
  /** Sets the standing of all spammers, so many a second. */
  setAll(standing: Standing, aSecond: number): Promise<void>;
}

export const readerName = (number: number): string => `reader-${number}`;
const authorName = (number: number): string => `author-${number}`;
const spammerName = (number: number): string => `spam-${number}`;

/** Numbers of drops of authors below and above those of spammers: a page is full without the latter. */
const DROPS = { below: 100, above: 30 };
const AT_ONCE = 16;
const EDGES_A_CALL = 500;
const PATIENCE_MS = 120_000;
const ENV = { TIMELINE_LOG_LEVEL: "warn", TIMELINE_AUDIT_INTERVAL_MS: "0" };

const numbers = (count: number): number[] => Array.from({ length: count }, (_, number) => number);

/** `defer` leaves a function to be called in the end, last first. */
export async function openWave(urls: Urls, size: WaveSize, defer: (close: () => unknown) => void): Promise<Wave> {
  const processes = await startProcesses(urls, defer);
  const { grpcAddress } = processes.upstreams;
  const [api, reader] = [openApi(grpcAddress), openReader(processes.api.grpcAddress)];
  defer(() => api.close());
  defer(() => reader.close());
  await followAll(grpcAddress, size);
  const post = async (author: number): Promise<string> => (await api.post(authorName(author % size.authors))).drop_id;
  for (const number of numbers(DROPS.below)) await post(number);
  const spam: string[] = [];
  await mapLimited(numbers(size.spammers), AT_ONCE, async (number) => {
    spam[number] = (await api.post(spammerName(number))).drop_id;
  });
  let newest = "";
  for (const number of numbers(DROPS.above)) newest = await post(number);
  const isOn = async (page: Promise<GetTimelineResponse>): Promise<boolean> => {
    const { drop_ids, degraded } = await page;
    return !degraded && drop_ids.includes(newest);
  };
  const limit = 100;
  await eventually(() => isOn(reader.local({ limit }, PATIENCE_MS)), "the last drop in local", PATIENCE_MS);
  await eventually(() => isOn(reader.global({ limit }, PATIENCE_MS)), "the last drop in global", PATIENCE_MS);
  for (const user of numbers(size.readers).map(readerName))
    await eventually(() => isOn(reader.home(user, { limit })), `the last drop in the home of ${user}`, PATIENCE_MS);
  const setAll = async (standing: Standing, aSecond: number): Promise<void> => {
    const begun = performance.now();
    await mapLimited(numbers(size.spammers), AT_ONCE, async (number) => {
      const wait = begun + (1_000 * number) / aSecond - performance.now();
      if (wait > 1) await new Promise((resolve) => setTimeout(resolve, wait));
      await api.setStanding({ user_id: spammerName(number), standing, reason: "wave" });
    });
  };
  return { processes, api, reader, spam, post, setAll };
}

async function startProcesses(urls: Urls, defer: (close: () => unknown) => void): Promise<Wave["processes"]> {
  const database = await startDatabase(defer);
  const port = await freePort();
  const address = `127.0.0.1:${port}`;
  const start = async (roles: string, env: Readonly<Record<string, string>> = {}): Promise<Service> => {
    const others = { usersAddress: address, postsAddress: address, roles, env: { ...ENV, ...env } };
    const service = await startService({ ...urls, ...others });
    defer(() => service.stop());
    return service;
  };
  const upstreams = await start("users,posts", { ...database, TIMELINE_GRPC_ADDR: address });
  const [fanout, api] = [await start("bridge,fanout"), await start("api")];
  const gateway = await start("gateway", { TIMELINE_API_ADDR: api.grpcAddress });
  return { upstreams: { ...upstreams, grpcAddress: address }, fanout, api, gateway };
}

async function startDatabase(defer: (close: () => unknown) => void): Promise<Readonly<Record<string, string>>> {
  if (postgresPrograms() !== undefined) {
    const server = await startPostgres();
    defer(() => server.stop());
    return { DATABASE_URL: server.url };
  }
  const folder = await temporaryFolder("data");
  defer(() => rm(folder, { recursive: true, force: true }));
  return { TIMELINE_DATA_DIR: join(folder, "data") };
}

/** Each reader follows all authors; spammers are shared among the readers. */
async function followAll(address: string, { readers, authors, spammers }: WaveSize): Promise<void> {
  const client = new UserServiceClient(address, credentials.createInsecure());
  const { followMany } = callsOf(client, UserServiceService);
  const ofAuthors = numbers(readers).flatMap((reader) =>
    numbers(authors).map((author) => ({ follower_id: readerName(reader), following_id: authorName(author) })),
  );
  const ofSpammers = numbers(spammers).map((spammer) => ({
    follower_id: readerName(spammer % readers),
    following_id: spammerName(spammer),
  }));
  for (const follows of chunked([...ofAuthors, ...ofSpammers], EDGES_A_CALL)) await followMany({ follows });
  client.close();
}
