import { homeKey, RECENT_KEY } from "../../../src/contracts/keys.js";
import { chunked, mapLimited } from "../../../src/kernel/concurrency.js";
import { silent } from "../../../src/kernel/logger.js";
import { createPublisher } from "../../../src/platform/nats/publish.js";
import { connected, connectRedis } from "../../../src/platform/redis/connect.js";
import { createDropIds } from "../../../src/posts/ids.js";
import { startRedisCluster } from "../../support/clusters.js";
import { startService } from "../../support/service.js";
import { startUpstreams } from "../../support/upstreams.js";
import { World } from "../../support/world.js";
import type { Bench } from "./bench.js";
import { measured } from "./measure.js";
import { check, type Row } from "./result.js";
import { createReads } from "./workloads.js";

const HOMES = 2_000;
const ENTRIES = 1_000;
const FOLLOWERS = 100;
const POSTS = 400;
/** No two have a follower in common, and one drop of each is under way: a home of a large network gets few at once. */
const AUTHORS = HOMES / FOLLOWERS;
const READS = 2_000;
const PATIENCE_MS = 120_000;
const AT_ONCE = 64;
const LISTENER_EVERY = 10;

const userOf = (n: number): string => `home-${n}`;

interface Sizes {
  readonly followers: number | undefined;
  readonly posts: number | undefined;
}

/** Drops of different authors for full homes of their own, then first pages of them; each is looked up. */
export async function ofTheCluster(bench: Bench, sizes: Sizes): Promise<Row[]> {
  const { followers = FOLLOWERS, posts = POSTS } = sizes;
  const cluster = await startRedisCluster({ replicas: false });
  bench.defer(() => cluster.stop());
  const redis = connectRedis(cluster.urls.split(","), silent);
  bench.defer(() => redis.disconnect());
  await connected(redis);
  const { natsServer, streams } = await bench.nats();
  const world = new World();
  const followersOf = (author: number): string[] =>
    Array.from({ length: followers }, (_, n) => userOf((author * followers + n) % HOMES));
  for (let author = 0; author < AUTHORS; author++)
    for (const follower of followersOf(author)) world.follow(follower, `author-${author}`);
  const upstreams = await startUpstreams(world);
  bench.defer(() => upstreams.stop());
  await mapLimited([...Array(HOMES).keys()], AT_ONCE, async (n) => {
    const drops = Array.from({ length: ENTRIES }, (_, age) => [Date.now() - 60_000 - 1_000 * age, `${n}-${age}`]);
    await redis.zadd(homeKey(userOf(n)), 0, "~floor", ...drops.flat());
    if (n % LISTENER_EVERY === 0) await redis.zadd(RECENT_KEY, Date.now(), userOf(n));
  });
  const { usersAddress, postsAddress } = upstreams;
  const start = async (roles: string) => {
    const addresses = { redisUrl: cluster.urls, natsUrl: natsServer.url, usersAddress, postsAddress };
    const service = await startService({ ...addresses, roles, env: { TIMELINE_LOG_LEVEL: "warn" } });
    bench.defer(() => service.stop());
    return service;
  };
  const worker = await start("fanout");
  const { publishAll } = createPublisher(streams.connection);
  const idOf = createDropIds();
  let published = 0;
  const publish = async (count: number): Promise<readonly (readonly [number, string])[]> => {
    const drops = Array.from({ length: count }, (_, n) => [n % AUTHORS, idOf(Date.now())] as const);
    const bodyOf = (user_id: string, drop_id: string) =>
      Buffer.from(JSON.stringify({ drop_id, user_id, visibility: "followers", created_at: Date.now() }));
    for (const some of chunked(drops, AUTHORS)) {
      await publishAll(
        some.map(([author, id]) => ({
          ...{ subject: "drops.created", id: `drop_created:${id}`, body: bodyOf(`author-${author}`, id) },
        })),
      );
      published += some.length;
      await streams.settledWith(published, PATIENCE_MS);
    }
    return drops;
  };
  await publish(AUTHORS);
  const masters = Object.fromEntries(cluster.masters.map(({ pid }, n) => [`master ${n + 1}`, pid]));
  const units = posts * (followers + 1);
  const { result: drops, cpu } = await measured({ processes: { worker: worker.pid, ...masters }, units }, () =>
    publish(posts),
  );
  for (const [author, id] of drops)
    for (const user of followersOf(author))
      check((await redis.zscore(homeKey(user), id)) !== null, `${id} is in the home of ${user}`);
  const bytesOf = async (stream: string): Promise<number> => {
    const { state } = await streams.manager.streams.info(stream);
    return state.bytes / state.messages;
  };
  const stored = [await bytesOf("DROPS"), await bytesOf("NOTIFY"), await bytesOf("COMPLETIONS")] as const;
  const api = await start("api");
  const read = createReads(bench, [api], { api: api.pid, ...masters });
  await read(READS, true);
  const pages = await read(HOMES, false);
  const redisOf = (spent: Readonly<Record<string, number>>): number =>
    Object.keys(masters).reduce((sum, name) => sum + (spent[name] as number), 0);
  return [
    { name: "NATS: a drop in DROPS", value: stored[0], unit: "B" },
    { name: "NATS: a notification in NOTIFY", value: stored[1], unit: "B" },
    { name: "NATS: a completion in COMPLETIONS", value: stored[2], unit: "B" },
    { name: "Redis Cluster: an entry, CPU of Redis", value: redisOf(cpu), unit: "µs" },
    { name: "Redis Cluster: an entry, CPU of the worker", value: cpu["worker"] as number, unit: "µs" },
    { name: "Redis Cluster: a page of 40, CPU of Redis", value: redisOf(pages.cpu), unit: "µs" },
    { name: "Redis Cluster: a page of 40, CPU of api", value: pages.cpu["api"] as number, unit: "µs" },
  ];
}
