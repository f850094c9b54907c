import { headers } from "nats";
import { SUBJECT_OF } from "../../src/contracts/events.js";
import { eventually } from "../support/eventually.js";
import { homeKey } from "../support/timeline-keys.js";
import type { World } from "../support/world.js";
import type { Bench, Servers } from "./support/bench.js";
import { countHeld, fillHomes, fillKeys } from "./support/homes.js";
import { besideHotUser } from "./support/hot-user.js";
import { between, measured } from "./support/measure.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const FOLLOWERS = 2_000;
const AUTHORS = 500;
const FOLLOWS_EACH = 5;
const DROPS = 20;
const ENTRIES = 1_000;
const PEERS = 200;
const WARM_EDGES = 1_000;
const FANS = 10_000;
const OTHERS = 500;
const CALM_AUTHORS = 20;
const PATIENCE_MS = 300_000;

const ABOUT = `Follows and unfollows in \`DROPS\`, applied by one process to full homes: ${DROPS} drops of the author are added or removed. The unit is an
entry. The ceiling is as many bare, pipelined ZADDs or ZREMs on full homes.

Then follows and drops of other users, one each 10 ms, from publishing to their ack or completion, while one user gains 10,000
followers a minute, or thousands in seconds. The peer is an idle service.`;

interface Edge {
  readonly follower: string;
  readonly author: string;
}

/** A process that has fallen behind by all of them: first the follows, then the unfollows. */
export async function run(parameters: Parameters, bench: Bench): Promise<Result> {
  const { followers = FOLLOWERS, authors = AUTHORS, posts = DROPS, entries = ENTRIES } = parameters;
  const servers = await bench.servers();
  const { redis, redisServer, natsServer, streams, world } = servers;
  const users = Array.from({ length: followers }, (_, n) => `user-${n}`);
  const dropsOf = (n: number): string[] => Array.from({ length: posts }, (_, age) => `drop-${n}-${age}`);
  const now = Date.now();
  for (let n = 0; n < authors; n++)
    world.post(
      ...dropsOf(n).map((drop_id, age) => ({
        drop_id,
        user_id: `author-${n}`,
        created_at: now - 60_000 - 1_000 * age,
      })),
    );
  const edges = users.flatMap((follower, n) =>
    Array.from({ length: Math.min(FOLLOWS_EACH, authors) }, (_, k) => ({
      follower,
      author: `author-${(n * 7 + k * 101) % authors}`,
    })),
  );
  await fillHomes(redis, users, { entries, newest: now - 30_000 });
  const service = await bench.service(servers, { roles: "fanout" });
  // Unmeasured: compiled code, fences, connections.
  const warm = Array.from({ length: WARM_EDGES }, (_, n) => ({
    follower: `warm-${n}`,
    author: `author-${n % authors}`,
  }));
  await through(servers, "user_followed", warm);
  await through(servers, "user_unfollowed", warm);
  const processes = { worker: service.pid, redis: redisServer.pid, nats: natsServer.pid, upstreams: process.pid };
  const apply = async (name: "user_followed" | "user_unfollowed"): Promise<Row> => {
    const [ceiling, { seconds, cpu }] = await between(
      () => bare(servers, { name, drops: posts, entries }),
      () => measured({ processes, units: edges.length }, () => through(servers, name, edges)),
    );
    const follows = name === "user_followed";
    return {
      name: `${follows ? "follows" : "unfollows"} of ${posts} drops`,
      ...{ value: edges.length / seconds, unit: "/s" },
      peer: { name: follows ? "bare ZADD" : "bare ZREM", value: ceiling / posts },
      cpu,
    };
  };
  const held = async (): Promise<number> => {
    const own = edges.map(({ follower, author }) =>
      countHeld(redis, [follower], dropsOf(Number(author.split("-")[1]))),
    );
    return (await Promise.all(own)).reduce((sum, count) => sum + count, 0);
  };
  const rows = [await apply("user_followed")];
  const followed = await held();
  check(followed === edges.length * posts, `${followed} entries are there, not ${edges.length * posts}`);
  rows.push(await apply("user_unfollowed"));
  check((await held()) === 0, "no drop is left after the unfollow");
  const crowd = hotCrowd(world, { posts, authors: Math.min(authors, CALM_AUTHORS) });
  await fillHomes(redis, [...crowd.fans, ...crowd.others], { entries, newest: now - 30_000 });
  rows.push(...(await besideHotUser(servers, { ...crowd, processes })));
  check((await countHeld(redis, crowd.fans, crowd.drops)) === crowd.fans.length * posts, "all fans have the drops");
  check((await streams.count("DLQ")) === 0, "nothing was dead-lettered");
  return { about: ABOUT, rows };
}

/** Users who follow one user at once, and others. */
function hotCrowd(world: World, { posts, authors }: { readonly posts: number; readonly authors: number }) {
  const names = (prefix: string, count: number) => Array.from({ length: count }, (_, n) => `${prefix}-${n}`);
  const [fans, others, drops] = [names("fan", FANS), names("other", OTHERS), names("star-drop", posts)];
  world.post(...drops.map((drop_id, age) => ({ drop_id, user_id: "star", created_at: Date.now() - 60_000 - age })));
  for (const fan of fans) world.follow(fan, "star");
  for (const [n, other] of others.entries()) world.follow(other, `author-${n % authors}`);
  return { fans, others, drops, star: "star", authors: names("author", authors) };
}

/** Until nothing is left to do; each event is in the log before the first is handled but for those of the first ms. */
async function through(
  { streams }: Servers,
  name: "user_followed" | "user_unfollowed",
  edges: readonly Edge[],
): Promise<void> {
  const version = name === "user_followed" ? 1 : 2;
  const { connection } = streams;
  const before = await streams.count("DROPS");
  for (const { follower, author } of edges) {
    const header = headers();
    header.set("Nats-Msg-Id", `${name}:${follower}:${author}`);
    const body = JSON.stringify({ follower_id: follower, following_id: author, version });
    connection.publish(SUBJECT_OF[name], body, { headers: header });
  }
  await connection.flush();
  const done = async (): Promise<true | string> => {
    if ((await streams.count("DROPS")) < before + edges.length) return "not all are admitted";
    const left = await streams.unfinished();
    return left === 0 || `${left} are not applied`;
  };
  await eventually(done, "all edges are applied", PATIENCE_MS);
}

/** Entries a second, on as full timelines; the client's pipeline is as deep as what is asked of one timeline. */
async function bare(
  { redis }: Servers,
  { name, drops, entries }: { readonly name: string; readonly drops: number; readonly entries: number },
): Promise<number> {
  const keys = Array.from({ length: PEERS }, (_, n) => homeKey(`bare-${n}`));
  await fillKeys(redis, keys, { entries });
  const ids = Array.from({ length: drops }, (_, n) => `bare-drop-${n}`);
  const scored = ids.flatMap((id) => [Date.now(), id]);
  if (name === "user_unfollowed") for (const key of keys) await redis.zadd(key, ...scored);
  const started = performance.now();
  const pipeline = redis.pipeline();
  for (const key of keys) {
    if (name === "user_followed") pipeline.zadd(key, ...scored);
    else pipeline.zrem(key, ...ids);
  }
  await pipeline.exec();
  const seconds = (performance.now() - started) / 1_000;
  await redis.del(...keys);
  return (keys.length * drops) / seconds;
}
