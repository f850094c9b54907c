import { execFileSync } from "node:child_process";
import { chmod, mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import { startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import { type Api, openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { openReader, type Reader } from "../support/reader.js";
import { type Service, startService } from "../support/service.js";
import { openStreams } from "../support/streams.js";
import { openWalArchive, type WalArchive } from "../support/wal-archive.js";

type Store = "redis" | "nats" | "data";
const STORES: readonly Store[] = ["redis", "nats", "data"];
const READERS = ["ada", "eve"];
const AUTHORS = ["bob", "cyd"];
const ENV = {
  TIMELINE_USER_SERVICE_ADDR: "",
  TIMELINE_POST_SERVICE_ADDR: "",
  TIMELINE_AUDIT_SETTLE_MS: "1000",
  // Without audits no luck can find it.
  TIMELINE_AUDIT_INTERVAL_MS: "0",
};

type Running = {
  readonly service: Service;
  readonly api: Api;
  readonly reads: Reader;
  readonly redis: Redis;
  /** Of PostgreSQL; unset where none is installed. */
  readonly databaseUrl: string | undefined;
  readonly addresses: { readonly redisUrl: string; readonly natsUrl: string };
  settled(): Promise<void>;
  stop(): Promise<void>;
};

/**
 * Brokers and a service with every role that timelines need, on the files of a folder. The database is PostgreSQL, with
 * these settings, where it is installed.
 */
async function runOn(folder: string, settings: readonly string[] = []): Promise<Running> {
  const data = join(folder, "data");
  const postgres =
    postgresPrograms() === undefined ? undefined : await startPostgres({ data: join(data, "cluster"), settings });
  const redisServer = await startRedis({ dir: join(folder, "redis"), appendonly: true });
  const natsServer = await startNats({ dir: join(folder, "nats") });
  const addresses = { redisUrl: redisServer.url, natsUrl: natsServer.url };
  const service = await startService({
    ...{ ...addresses, usersAddress: "", postsAddress: "", roles: "users,posts,bridge,fanout,api" },
    env: { ...ENV, ...(postgres ? { DATABASE_URL: postgres.url } : { TIMELINE_DATA_DIR: data }) },
  });
  const [api, reads] = [openApi(service.grpcAddress), openReader(service.grpcAddress)];
  const redis = new Redis(redisServer.url);
  const streams = await openStreams(natsServer.url);
  return {
    ...{ service, api, reads, redis, addresses, databaseUrl: postgres?.url },
    settled: () => eventually(async () => (await streams.unfinished()) === 0, "everything is applied"),
    stop: async () => {
      api.close();
      reads.close();
      redis.disconnect();
      await streams.close();
      await service.stop();
      await natsServer.stop();
      await redisServer.stop();
      await postgres?.stop();
    },
  };
}

async function post({ api }: Running, count: number): Promise<string[]> {
  const posted: string[] = [];
  for (let at = 0; at < count; at++)
    for (const author of AUTHORS) posted.push((await api.post(author, { body: `${at}` })).drop_id);
  return posted;
}

const newestFirst = (ids: readonly string[]): string[] => [...ids].sort().reverse();

/** The drops of some authors as the database has them; ids of this server begin with their time. */
async function dropsOf({ api }: Running, authors: readonly string[]): Promise<string[]> {
  const asked = authors.map((user_id) => api.dropsOf({ user_id, limit: 500, max_id: "", before: 0 }));
  return newestFirst((await Promise.all(asked)).flatMap(({ drops }) => drops.map(({ drop_id }) => drop_id)));
}

/** Pages are whole, and what the database says, but for drops that were deleted once. */
async function expectTruth(running: Running, deleted: string): Promise<void> {
  const { api, reads } = running;
  const shown = (ids: readonly string[]): string[] => ids.filter((id) => id !== deleted);
  for (const reader of READERS) {
    const { user_ids } = await api.following({ user_id: reader, page_size: 0, page_token: "" });
    const page = await reads.home(reader, { limit: 100 });
    const wanted = shown(await dropsOf(running, [reader, ...user_ids]));
    expect({ reader, ...page }).toMatchObject({ reader, drop_ids: wanted, degraded: false });
  }
  const own = shown(await dropsOf(running, [...AUTHORS, ...READERS]));
  for (const read of [reads.local, reads.global])
    expect(await read({ limit: 100 })).toMatchObject({ drop_ids: own, degraded: false });
}

const copy = (from: string, to: string): void => void execFileSync("cp", ["-a", from, to]);

const POINT = "backup";
let folder: string;
let deleted: string;
let archive: WalArchive | undefined;
let backedUpAt: string | undefined;

beforeAll(async () => {
  folder = await temporaryFolder("restore");
  await chmod(folder, 0o755);
  archive = postgresPrograms() === undefined ? undefined : openWalArchive(folder);
  const live = join(folder, "live");
  for (const store of STORES) await mkdir(join(live, store), { recursive: true });
  const first = await runOn(live, archive?.settings);
  archive?.backUp(first.databaseUrl as string);
  await first.api.follow({ follower_id: "ada", following_id: "bob" });
  await first.api.follow({ follower_id: "ada", following_id: "cyd" });
  await first.api.follow({ follower_id: "eve", following_id: "cyd" });
  const [before = ""] = await post(first, 6);
  deleted = before;
  await becomes(() => expectTruth(first, ""));
  await first.settled();
  backedUpAt = await archive?.namePoint(first.databaseUrl as string, POINT);
  await first.stop();
  copy(live, join(folder, "backup"));
  const second = await runOn(live, archive?.settings);
  await post(second, 5);
  await second.api.deleteDrop({ drop_id: deleted, user_id: "bob" });
  await second.api.unfollow({ follower_id: "ada", following_id: "cyd" });
  await second.api.follow({ follower_id: "eve", following_id: "bob" });
  await second.settled();
  await becomes(() => expectTruth(second, deleted));
  await second.settled();
  await second.stop();
}, 120_000);

afterAll(() => rm(folder, { recursive: true, force: true }));

/**
 * Fills a folder with stores, and returns settings for PostgreSQL, whose restore ends at the moment of the other backups. This
 * has its time where PostgreSQL alone is restored, and else its name.
 */
async function restore(place: string, restored: readonly string[]): Promise<readonly string[]> {
  await mkdir(place);
  for (const store of STORES) copy(join(folder, restored.includes(store) ? "backup" : "live", store), place);
  if (archive === undefined || !restored.includes("data")) return [];
  const cluster = join(place, "data", "cluster");
  await rm(cluster, { recursive: true });
  return archive.restore(cluster, restored.length === 1 ? { time: backedUpAt as string } : { name: POINT });
}

// Invariant 5.
test.each([["redis"], ["nats"], ["data"], ["redis and nats"], ["redis and data"], ["nats and data"]])(
  "%s restored from a copy: pages are what the database says, at once or after the command",
  async (names) => {
    const restored = names.split(" and ");
    const place = join(folder, names.replaceAll(" ", "-"));
    const running = await runOn(place, await restore(place, restored));
    try {
      const { service, reads, addresses } = running;
      if (restored.includes("data")) {
        await eventually(async () => (await reads.home("ada")).degraded, "pages say so");
        await eventually(
          () => service.output().includes("recover --database-is-the-truth"),
          "the log names the remedy",
        );
        const upstreams = { usersAddress: service.grpcAddress, postsAddress: service.grpcAddress };
        const found = await jsonOf({ serviceOptions: { ...addresses, ...upstreams } }, [
          "recover",
          "--database-is-the-truth",
        ]);
        expect(found).toMatchObject({ undone: true, not_judged: 0 });
      }
      await becomes(() => expectTruth(running, deleted));
      // A new drop now reaches the followers the database names.
      await post(running, 1);
      await running.api.follow({ follower_id: "ada", following_id: "cyd" });
      await running.api.unfollow({ follower_id: "eve", following_id: "bob" });
      await post(running, 1);
      await running.settled();
      await becomes(() => expectTruth(running, deleted));
      // Nothing comes back where Redis loses everything.
      await running.redis.flushall();
      await becomes(() => expectTruth(running, deleted));
    } finally {
      await running.stop();
      await rm(place, { recursive: true, force: true });
    }
  },
  120_000,
);
