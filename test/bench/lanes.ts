import { fork } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:http2";
import { setTimeout as pause } from "node:timers/promises";
import { COMPLETED_FANOUT } from "../../src/contracts/subjects.js";
import { GetTimelineRequest, GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { createPublisher } from "../../src/platform/nats/publish.js";
import { FLOOR_MEMBER, TOMBSTONES_KEY } from "../../src/state/keys.js";
import { eventually } from "../support/eventually.js";
import type { Bench, Servers } from "./support/bench.js";
import { checkHomes, countHeld, dropIds, fillHomes, TTL_MS } from "./support/homes.js";
import { AUTHORS, authorOf, fanOf, followersOf, STAR, userOf, users } from "./support/lanes-shared.js";
import { summarise } from "./support/measure.js";
import { LIMIT, openFrames } from "./support/reads-shared.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const FOLLOWERS = 1_000_000;
const POSTS = 1_000;
const ENTRIES = 1_000;
/** Drops and reads are begun at fixed times, however long the ones before take. */
const EVERY_MS = 10;
/** Of the homes of the large audience, one in so many is looked at. */
const LOOKED_AT = 97;
const CHECKED = 9;
const TARGET = 2;
const PATIENCE_MS = 300_000;
const SHAPES = [["fanout", "api"], ["fanout,api"]] as const;

const ABOUT = `Small drops (10 to 100 followers with full homes) until their completion, and first pages of ${LIMIT}, during fan-outs to ${FOLLOWERS.toLocaleString("en")} followers. The
peer is the idle service. Paced: a drop and a page each ${EVERY_MS} ms. Behind: all small drops at once, right after the large one. The roles run in
one process each, then in one together.`;

type Load = "paced" | "behind";

/** Times in ms. */
interface Times {
  readonly drops: readonly number[];
  readonly pages: readonly number[];
}

interface Scene {
  readonly servers: Servers;
  readonly read: (user: string) => Promise<GetTimelineResponse>;
  readonly publish: (author: string, count: number) => Promise<readonly string[]>;
  /** Times of completions by drop. */
  readonly landed: ReadonlyMap<string, { readonly at: number; readonly recipients: number }>;
  readonly followers: number;
  readonly posts: number;
}

export async function run(parameters: Parameters, bench: Bench): Promise<Result> {
  const rows: Row[] = [];
  for (const processes of SHAPES) rows.push(...(await measureShape(processes, parameters, bench)));
  return { about: ABOUT, rows };
}

async function measureShape(
  processes: readonly string[],
  { followers = FOLLOWERS, posts = POSTS, entries = ENTRIES }: Parameters,
  bench: Bench,
): Promise<Row[]> {
  const scene = await openScene(processes, { followers, posts, entries }, bench);
  const begun = new Map<string, readonly string[]>();
  const measure = async (load: Load, large: boolean): Promise<Times> => {
    const { times, drops } = await (large ? besideLarge(scene, load) : small(scene, load));
    for (const [author, some] of drops) begun.set(author, [...(begun.get(author) ?? []), ...some]);
    return times;
  };
  const rows: Row[] = [];
  await measure("paced", false);
  for (const load of ["paced", "behind"] as const) {
    const before = await measure(load, false);
    const beside = await measure(load, true);
    const idle = [before, await measure(load, false)];
    rows.push(
      ...rowsOf(
        `${load}: small drops`,
        beside.drops,
        idle.map(({ drops }) => drops),
      ),
    );
    if (load === "paced")
      rows.push(
        ...rowsOf(
          "first pages",
          beside.pages,
          idle.map(({ pages }) => pages),
        ),
      );
  }
  for (let author = 0; author < AUTHORS; author++)
    await checkHomes(scene.servers.redis, followersOf(author), (begun.get(authorOf(author)) ?? []).slice(-CHECKED));
  return rows.map((row) => ({ ...row, name: `${processes.join(" and ")}: ${row.name}` }));
}

function rowsOf(name: string, beside: readonly number[], idle: readonly (readonly number[])[]): Row[] {
  const [own, peers] = [summarise(beside), idle.map(summarise)];
  const peerOf = (what: "p50" | "p99"): number => peers.reduce((sum, peer) => sum + peer[what], 0) / peers.length;
  return (["p50", "p99"] as const).map((what) => ({
    name: `${name}, ${what}`,
    ...{ value: own[what], unit: "ms", peer: { name: "idle", value: peerOf(what) } },
    ...(what === "p99" ? { target: { atMost: TARGET } } : {}),
  }));
}

async function openScene(
  processes: readonly string[],
  { followers, posts, entries }: { readonly followers: number; readonly posts: number; readonly entries: number },
  bench: Bench,
): Promise<Scene> {
  const servers = await bench.servers();
  const upstream = fork(new URL("support/lanes-upstream.ts", import.meta.url), [String(followers)], {
    execArgv: ["--import", "tsx"],
  });
  bench.defer(() => upstream.kill());
  const [addresses] = (await once(upstream, "message")) as [Record<"usersAddress" | "postsAddress", string>];
  await fillHomes(servers.redis, users(), { entries });
  await servers.redis.zadd(TOMBSTONES_KEY, 0, FLOOR_MEMBER);
  const env = {
    TIMELINE_USER_SERVICE_ADDR: addresses.usersAddress,
    TIMELINE_POST_SERVICE_ADDR: addresses.postsAddress,
    TIMELINE_FANOUT_PULL_THRESHOLD: "1000000000",
    // Reads take a home that nobody has read for a week as lost.
    TIMELINE_KEY_TTL_MS: String(TTL_MS),
  };
  const services = [];
  for (const roles of processes) services.push(await bench.service(servers, { roles, env }));
  const session = connect(`http://${services.at(-1)?.grpcAddress}`);
  bench.defer(() => session.destroy());
  const call = openFrames(session, "/avion.TimelineService/GetHomeTimeline");
  const landed = new Map<string, { readonly at: number; readonly recipients: number }>();
  servers.streams.connection.subscribe(COMPLETED_FANOUT, {
    callback: (_, message) => {
      const { drop_id, recipients } = message.json<{ drop_id: string; recipients: number }>();
      check(!landed.has(drop_id), `${drop_id} was completed twice`);
      landed.set(drop_id, { at: performance.now(), recipients });
    },
  });
  return {
    ...{ servers, landed, followers, posts, publish: createPublish(servers) },
    read: async (user_id) => {
      const request = GetTimelineRequest.encode(GetTimelineRequest.create({ user_id, limit: LIMIT })).finish();
      return GetTimelineResponse.decode(await call(request));
    },
  };
}

function createPublish({ streams }: Servers): Scene["publish"] {
  const { publishAll } = createPublisher(streams.connection);
  let published = 1_000_000;
  return async (author, count) => {
    const ids = dropIds(count, published);
    published += count;
    const created_at = Date.now();
    await publishAll(
      ids.map((drop_id) => ({
        ...{ subject: "drops.created", id: `drop_created:${drop_id}` },
        body: Buffer.from(JSON.stringify({ drop_id, user_id: author, visibility: "followers", created_at })),
      })),
    );
    return ids;
  };
}

interface Small {
  readonly times: Times;
  /** By author. */
  readonly drops: ReadonlyMap<string, readonly string[]>;
}

async function small({ read, publish, landed, posts }: Scene, load: Load): Promise<Small> {
  const drops = new Map<string, string[]>();
  const begun = new Map<string, number>();
  const publishOne = async (n: number): Promise<void> => {
    const at = performance.now();
    const [id = ""] = await publish(authorOf(n), 1);
    begun.set(id, at);
    drops.set(authorOf(n), [...(drops.get(authorOf(n)) ?? []), id]);
  };
  const pages: number[] = [];
  const readOne = async (n: number): Promise<void> => {
    const at = performance.now();
    const page = await read(userOf(n));
    pages.push(performance.now() - at);
    check(
      page.drop_ids.length === LIMIT && !page.degraded,
      `a page of ${page.drop_ids.length}, degraded: ${page.degraded}`,
    );
  };
  const started = performance.now();
  const work: Promise<void>[] = [];
  for (let n = 0; n < posts; n++) {
    if (load === "paced") {
      await pause(Math.max(0, started + n * EVERY_MS - performance.now()));
      work.push(readOne(n));
    }
    work.push(publishOne(n));
  }
  await Promise.all(work);
  const missing = (): number => [...begun.keys()].filter((id) => !landed.has(id)).length;
  await eventually(() => missing() === 0 || `${missing()} are missing`, "all small drops have landed", PATIENCE_MS);
  const times = [...begun].map(([id, at]) => (landed.get(id)?.at as number) - at);
  return { times: { drops: times, pages }, drops };
}

/** Keeps a large fan-out under way as long as small drops come. */
async function besideLarge(scene: Scene, load: Load): Promise<Small> {
  const { publish, landed, followers, servers } = scene;
  let isOver = false;
  const large: string[] = [];
  const [first] = await publish(STAR, 1);
  const keepOn = async (): Promise<void> => {
    for (let id: string | undefined = first; id !== undefined; id = isOver ? undefined : (await publish(STAR, 1))[0]) {
      const drop = id;
      await eventually(() => landed.has(drop) || "it is missing", "a large drop has landed", PATIENCE_MS);
      large.push(drop);
    }
  };
  const keeping = keepOn();
  const done = await small(scene, load);
  isOver = true;
  await keeping;
  for (const id of large) check(landed.get(id)?.recipients === followers + 1, `${id} is for all followers`);
  const some = Array.from({ length: Math.floor(followers / LOOKED_AT) }, (_, n) => fanOf(n * LOOKED_AT));
  check((await countHeld(servers.redis, some, large)) === some.length * large.length, "followers have the large drops");
  return done;
}
