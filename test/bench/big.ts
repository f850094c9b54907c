import { readFileSync } from "node:fs";
import { type FanoutCompleted, HOME_TIERS, type Tiers } from "../../src/contracts/fanout.js";
import { COMPLETED_FANOUT } from "../../src/contracts/subjects.js";
import { chunked, mapLimited } from "../../src/kernel/concurrency.js";
import { encodeId } from "../../src/kernel/ids.js";
import { DAY } from "../../src/kernel/time.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { createDropIds } from "../../src/posts/drops/ids.js";
import { authorKey, homeKey, PULLED_KEY, RECENT_KEY } from "../../src/state/keys.js";
import { eventually } from "../support/eventually.js";
import { runMain } from "../support/service.js";
import type { Bench, Servers } from "./support/bench.js";
import { openReads, readCosts } from "./support/big-reads.js";
import { BigWorld } from "./support/big-world.js";
import { checkHomes, countHeld, fillHomes } from "./support/homes.js";
import { fanOf, STAR } from "./support/lanes-shared.js";
import { measured } from "./support/measure.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const FOLLOWERS = 100_000;
const POSTS = 5;
const ENTRIES = 20;
const LISTENERS = 1_000;
/** Followers whose pages are read at the end. */
const READERS = 200;
const RECENT_APART = 4;
const PATIENCE_MS = 600_000;
const SAMPLE_MS = 50;
const PAGE_BYTES = 4_096;
const MB = 1_048_576;

const ABOUT = `Drops of one author with ${FOLLOWERS.toLocaleString("en")} followers, who is pushed, then tiered, then pulled, by one worker. A time runs from the publication of a drop until every follower
can read it, until every listener is notified, or until the homes of a tier are written. Every ${RECENT_APART}th follower has read their home
lately. Memory is the growth of the worker.

Then first pages of followers of pulled authors, who post ten drops a day each. Homes hold 1,000 drops and get one every 36 s. No page is
cached.`;

interface Landed {
  readonly published: number;
  readonly told: { count: number; last: number };
  completed?: number;
  tiers?: Tiers | undefined;
  readable?: number;
}

interface Scene {
  readonly servers: Servers;
  readonly fans: readonly string[];
  readonly worker: number;
  readonly listeners: number;
  readonly posts: number;
  readonly landed: Map<string, Landed>;
}

export async function run(parameters: Parameters, bench: Bench): Promise<Result> {
  const { followers = FOLLOWERS, posts = POSTS, entries = ENTRIES, connections = LISTENERS } = parameters;
  const world = new BigWorld(followers);
  const servers = await bench.servers(world);
  const fans = Array.from({ length: followers }, (_, n) => fanOf(n));
  await fillHomes(servers.redis, fans, { entries });
  const env = { TIMELINE_FANOUT_PULL_THRESHOLD: "off", TIMELINE_MAX_ENTRIES: "1000" };
  await readLately(servers, fans);
  const worker = await bench.service(servers, { roles: "fanout", env });
  const api = await bench.service(servers, { roles: "api", env: { ...env, TIMELINE_READ_CACHE_BYTES: "0" } });
  const scene = { servers, fans, worker: worker.pid, listeners: connections, posts, landed: openLanded(servers) };
  const read = openReads(bench, api);
  await listen(scene);
  await publish(scene, "push", 1);
  const pushed = await measure(scene, "push");
  await choose(scene, "tier", env);
  await publish(scene, "tier", 1);
  const tiered = await measure(scene, "tier");
  for (const { drops } of [pushed, tiered]) await checkHomes(servers.redis, fans, drops);
  await choose(scene, "pull", env);
  await publish(scene, "pull", 1);
  const pulled = await measure(scene, "pull");
  check((await countHeld(servers.redis, fans, pulled.drops)) === 0, "no home holds a pulled drop");
  const newest = [...pulled.drops].reverse();
  const apart = Math.max(1, Math.floor(followers / READERS));
  await mapLimited(
    fans.filter((_, n) => n % apart === 0),
    16,
    async (fan) => {
      const { drop_ids, degraded } = await read(fan);
      check(!degraded && drop_ids.slice(0, posts).join() === newest.join(), `${fan} reads all pulled drops`);
      check(
        [...pushed.drops, ...tiered.drops].every((drop) => drop_ids.includes(drop)),
        `${fan} reads all other drops`,
      );
    },
  );
  return {
    about: ABOUT,
    rows: [...pushed.rows, ...tiered.rows, ...pulled.rows, ...(await readCosts(servers, api, read))],
  };
}

function openLanded({ streams: { connection } }: Servers): Map<string, Landed> {
  const landed = new Map<string, Landed>();
  connection.subscribe(COMPLETED_FANOUT, {
    callback: (_, message) => {
      const { drop_id, tiers } = message.json<FanoutCompleted>();
      const one = landed.get(drop_id);
      if (!one) return;
      one.completed ??= Date.now();
      one.tiers = tiers;
    },
  });
  connection.subscribe("live.user.*", {
    callback: (_, message) => {
      const told = landed.get(message.json<{ drop_id: string }>().drop_id)?.told;
      if (!told) return;
      told.count++;
      told.last = Date.now();
    },
  });
  return landed;
}

/** So many of the followers have a stream open, as the gateway notes it. */
async function listen({ servers: { redis }, fans, listeners }: Scene): Promise<void> {
  const apart = Math.max(1, Math.floor(fans.length / listeners));
  const some = fans.filter((_, n) => n % apart === 0).slice(0, listeners);
  for (const part of chunked(some, 1_000))
    await redis.zadd(RECENT_KEY, ...part.flatMap((fan) => [Date.now() + PATIENCE_MS, encodeId(fan)]));
}

/** Some have read their home a moment ago. */
async function readLately({ redis }: Servers, fans: readonly string[]): Promise<void> {
  const some = fans.filter((_, n) => n % RECENT_APART === 1);
  for (const part of chunked(some, 1_000)) {
    const pipeline = redis.pipeline();
    for (const fan of part) pipeline.pexpire(homeKey(fan), 30 * DAY);
    await pipeline.exec();
  }
}

type Mode = "push" | "tier" | "pull";

/** Each once the one before is complete. */
async function publish(scene: Scene, mode: Mode, count: number): Promise<string[]> {
  const { servers, fans, landed } = scene;
  const listeners = Math.min(scene.listeners, fans.length);
  const { publishAll } = createPublisher(servers.streams.connection);
  const idOf = createDropIds();
  const drops: string[] = [];
  for (let n = 0; n < count; n++) {
    const created_at = Date.now();
    const drop_id = idOf(created_at);
    const one: Landed = { published: created_at, told: { count: 0, last: 0 } };
    landed.set(drop_id, one);
    servers.world.post({ drop_id, user_id: STAR, created_at, visibility: "followers" });
    const body = Buffer.from(JSON.stringify({ drop_id, user_id: STAR, visibility: "followers", created_at }));
    await publishAll([{ subject: "drops.created", id: `drop_created:${drop_id}`, body }]);
    if (mode !== "push") {
      const isThere = async () =>
        one.completed !== undefined || (await servers.redis.zscore(authorKey(STAR), drop_id)) !== null;
      await eventually(isThere, "the author's timeline holds the drop", PATIENCE_MS);
      one.readable = Date.now();
    }
    await eventually(() => one.completed !== undefined, "the fan-out is complete", PATIENCE_MS);
    await eventually(
      () => one.told.count === listeners || `${one.told.count} of ${listeners} were told`,
      "all who listen were told",
      PATIENCE_MS,
    );
    check((await servers.redis.zscore(homeKey(STAR), drop_id)) !== null, "the author's home holds the drop");
    drops.push(drop_id);
  }
  return drops;
}

async function measure(scene: Scene, mode: Mode): Promise<{ readonly rows: Row[]; readonly drops: readonly string[] }> {
  const { servers, worker, landed, posts } = scene;
  const before = residentBytes(worker);
  let most = before;
  const sampling = setInterval(() => {
    most = Math.max(most, residentBytes(worker));
  }, SAMPLE_MS);
  const processes = { worker, redis: servers.redisServer.pid, nats: servers.natsServer.pid };
  const { result: drops, cpu } = await measured({ processes, units: posts }, () => publish(scene, mode, posts));
  clearInterval(sampling);
  const times = drops.map((drop) => landed.get(drop) as Landed);
  const mean = (timeOf: (one: Landed) => number): number =>
    times.reduce((sum, one) => sum + timeOf(one) - one.published, 0) / times.length / 1_000;
  const name = (what: string): string => `${mode}: ${what}`;
  return {
    drops,
    rows: [
      {
        name: name("readable by all"),
        value: mean((one) => one.readable ?? (one.completed as number)),
        unit: "s",
        cpu,
      },
      { name: name(`${scene.listeners} listeners notified`), value: mean(({ told }) => told.last), unit: "s" },
      ...tierRows(times).map(([tier, value]) => ({ name: name(`homes written: ${tier}`), value, unit: "s" })),
      { name: name("complete"), value: mean(({ completed }) => completed as number), unit: "s" },
      {
        name: name("memory of the worker"),
        value: (most - before) / MB,
        unit: "MB more",
        note: `${Math.round(before / MB)} MB before`,
      },
    ],
  };
}

const residentBytes = (pid: number): number =>
  PAGE_BYTES * Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]);

/** Of each tier the mean time in s until its last home was written; none where drops are not tiered. */
function tierRows(times: readonly Landed[]): [string, number][] {
  if (!times[0]?.tiers) return [];
  return HOME_TIERS.map((tier) => {
    const landed = times.map(({ tiers, published }) => (tiers?.[tier].landed_at ?? published) - published);
    return [tier, landed.reduce((sum, ms) => sum + ms, 0) / times.length / 1_000];
  });
}

/** By hand; resolves once every process does it. */
async function choose({ servers }: Scene, wish: "tier" | "pull", env: Readonly<Record<string, string>>): Promise<void> {
  const { redis, redisServer, natsServer, upstreams } = servers;
  const command = runMain(["author", wish, STAR, "--json"], {
    ...{ REDIS_URL: redisServer.url, NATS_URL: natsServer.url, ...env },
    ...{ TIMELINE_USER_SERVICE_ADDR: upstreams.usersAddress, TIMELINE_POST_SERVICE_ADDR: upstreams.postsAddress },
  });
  const { code } = await command.exited;
  check(code === 0, `author ${wish}: ${command.errors()}`);
  const wanted = wish === "tier" ? "tiered:" : "pulled:";
  const state = async (): Promise<true | string> => {
    const held = (await redis.hget(PULLED_KEY, encodeId(STAR))) ?? "not held";
    return held.startsWith(wanted) || held;
  };
  await eventually(state, `the author is ${wanted}`, PATIENCE_MS);
}
