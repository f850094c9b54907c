import { beforeAll, expect, test } from "@jest/globals";
import { mapLimited } from "../../src/kernel/concurrency.js";
import { silent } from "../../src/kernel/logger.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { call, post } from "../support/analysis-http.js";
import { doubledOn, expectPages, missedOn, PATIENCE_MS } from "../support/busy-oracle.js";
import { act, share } from "../support/busy-people.js";
import { BusyWorld } from "../support/busy-world.js";
import { startNatsCluster, startRedisCluster } from "../support/clusters.js";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { migrateBeyond } from "../support/older-schema.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { TcpProxy } from "../support/proxy.js";
import { below, oneOf, seeded } from "../support/random.js";
import { openReader, type Reader } from "../support/reader.js";
import { Listener } from "../support/rehearsal.js";
import { buildRelease, hasRelease, RELEASE } from "../support/release.js";
import { samplesOf } from "../support/scrape.js";
import { freePorts, program, type Service } from "../support/service.js";
import { type Place, startPlace, startStack } from "../support/stack.js";

const PEOPLE = Array.from({ length: 40 }, (_, number) => `person-${number}`);
/** These only listen: whom they follow stays as it was, so that it is known what their streams must send. */
const LISTENERS = PEOPLE.slice(0, 6);
/** This one asks for analyses of all of them. */
const ASKING = LISTENERS[0] as string;
const OTHERS = PEOPLE.slice(LISTENERS.length);
const WORKERS = 3;
/** People do so many things between two steps of an upgrade. */
const THINGS = 30;
const SEED = Number(process.env["RELEASES_SEED"] ?? 1);

const all = <T>(items: readonly T[], work: (item: T) => Promise<unknown>) => mapLimited(items, 8, work);

/** Jobs are small, so that both releases share the work of a drop. Audits would mend what is to be found, and are off. */
const ENV = {
  TIMELINE_FANOUT_CHUNK_SIZE: "5",
  TIMELINE_RELAY_CHANNELS: "true",
  TIMELINE_ACK_WAIT_MS: "5000",
  TIMELINE_RETRY_BASE_MS: "50",
  TIMELINE_AUDIT_INTERVAL_MS: "0",
};

/** Every table gets a column that the release does not know: the most that a migration of the next release may do. */
const EXPAND = `DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
  LOOP EXECUTE format('ALTER TABLE %s ADD of_the_next_release text NOT NULL DEFAULT ''new''', name); END LOOP;
END $$`;

const EACH_REPOST = { TIMELINE_HOME_REPOST_WINDOW: "0" };

/** The processes of one version, each role group in one. */
interface Version {
  readonly upstreams: Service;
  readonly others: readonly Service[];
  readonly reader: Reader;
  readonly gateway: string;
}

interface Scene {
  readonly stack: Place;
  readonly world: BusyWorld;
  /** All processes call the users and posts services through it; the people call those of both versions in turn. */
  readonly proxy: TcpProxy;
  readonly env: Readonly<Record<string, string>>;
  /** Those of the versions that run. */
  readonly readers: Reader[];
  readonly gateways: string[];
  readonly listeners: Listener[];
  readonly asked: string[];
}

async function openScene(stack: Place, ports: readonly number[], own: Scene["env"]): Promise<Scene> {
  const proxy = await TcpProxy.open(ports[0] as number);
  stack.afterServices(() => proxy.close());
  const address = proxy.url("http").replace("http://", "");
  const world = new BusyWorld(`ipv4:${ports.map((port) => `127.0.0.1:${port}`).join()}`, PEOPLE, seeded(SEED), false);
  stack.defer(() => world.close());
  const upstreams = { TIMELINE_USER_SERVICE_ADDR: address, TIMELINE_POST_SERVICE_ADDR: address };
  const env = { ...ENV, ...upstreams, ...own };
  const scene: Scene = { stack, world, proxy, env, readers: [], gateways: [], listeners: [], asked: [] };
  stack.defer(() => Promise.all(scene.listeners.map((listener) => listener.close())));
  return scene;
}

const withEnv = (scene: Scene, more: Scene["env"]): Scene => ({ ...scene, env: { ...scene.env, ...more } });

const startUpstreams = ({ stack, env }: Scene, command: readonly string[], port: number): Promise<Service> =>
  stack.start({
    ...{ command, roles: "users,posts,analysis,rewards" },
    env: { ...env, TIMELINE_GRPC_ADDR: `127.0.0.1:${port}` },
  });

/** The other processes call the upstreams that the proxy leads to, whichever version these are of. */
async function startOthers(scene: Scene, command: readonly string[], upstreams: Service): Promise<Version> {
  const { stack, env, readers, gateways } = scene;
  const start = (roles: string) => stack.start({ command, roles, env });
  const [fanout, api] = await Promise.all([start("bridge,fanout"), start("api,gateway")]);
  const reader = openReader(api.grpcAddress);
  stack.defer(() => reader.close());
  readers.push(reader);
  gateways.push(api.httpUrl);
  return { upstreams, others: [fanout, api], reader, gateway: api.httpUrl };
}

/** From now on all processes call the upstreams at this port. */
function leadTo({ proxy }: Scene, port: number): void {
  proxy.aim(port);
  proxy.cut();
}

async function end({ readers, gateways }: Scene, { upstreams, others, reader, gateway }: Version): Promise<void> {
  expect(await doneBy(others[0] as Service)).toBeGreaterThan(0);
  readers.splice(readers.indexOf(reader), 1);
  gateways.splice(gateways.indexOf(gateway), 1);
  const endings = await Promise.all([upstreams, ...others].map((service) => service.stop()));
  expect(endings).toEqual(endings.map(() => ({ code: 0, signal: null })));
}

/** Messages that a process has handled. */
async function doneBy({ httpUrl }: Service): Promise<number> {
  const samples = samplesOf(await (await fetch(`${httpUrl}/metrics`)).text());
  const done = samples.filter(
    ({ name, labels }) => name === "timeline_deliveries_total" && labels["outcome"] === "acked",
  );
  return done.reduce((sum, { value }) => sum + value, 0);
}

async function fill({ world, readers }: Scene): Promise<void> {
  await world.followAtRandom(8);
  for (const user of LISTENERS) for (const followed of OTHERS.slice(0, 6)) await world.follow(user, followed);
  await all(PEOPLE, (user) => world.post(user));
  await all(PEOPLE, (user) => (readers[0] as Reader).home(user, {}, 60_000));
}

async function listen({ gateways, listeners }: Scene, users: readonly string[]): Promise<void> {
  listeners.push(...users.map((user) => new Listener(gateways, user)));
  await eventually(() => listeners.every(({ isOpen }) => isOpen), "the streams are open");
}

/** Asks the newest gateway for an analysis of each listener. */
async function ask({ gateways, asked }: Scene, type: string): Promise<void> {
  for (const did of LISTENERS) {
    const { status, body } = await post(gateways.at(-1) as string, ASKING, { tier: "ORBIT", body: { did, type } });
    expect(status).toBe(202);
    asked.push(body.analysis_id);
  }
}

/** People do things and read pages until they are stopped. */
function keepBusy({ world, readers }: Scene, seed: number): () => Promise<void> {
  let isOver = false;
  const until = async (work: () => Promise<unknown>): Promise<void> => {
    while (!isOver) await work();
  };
  const acting = Array.from({ length: WORKERS }, (_, worker) => {
    const random = seeded(seed + worker);
    const group = { own: OTHERS.filter((_user, place) => place % WORKERS === worker), busy: 2 };
    return until(() => (below(random, 8) === 0 ? share : act)(world, random, group));
  });
  const random = seeded(seed + WORKERS);
  // A process that ends may refuse a read.
  const reading = until(() =>
    oneOf(random, readers)
      .home(oneOf(random, PEOPLE))
      .catch(() => undefined),
  );
  return async () => {
    isOver = true;
    await Promise.all([...acting, reading]);
  };
}

/** Takes the steps while people are busy, and then compares every page of every process with what the people did. */
async function underLoad(scene: Scene, ...steps: readonly (() => unknown)[]): Promise<void> {
  const { world } = scene;
  const calm = keepBusy(scene, SEED + world.answered);
  try {
    for (const step of [...steps, () => undefined]) {
      const until = world.answered + THINGS;
      await eventually(() => world.answered >= until, "people go on", PATIENCE_MS);
      await step();
    }
  } finally {
    await calm();
  }
  await expectNoDeadLetters(scene);
  await expectPages({ ...scene, repostWindow: 0 }, PEOPLE);
}

async function expectNoDeadLetters({ stack: { streams } }: Scene): Promise<void> {
  expect((await streams.all("DLQ")).map(({ subject, headers }) => ({ subject, headers }))).toEqual([]);
}

async function expectNothingLost(scene: Scene, before: ReadonlySet<string>): Promise<void> {
  const { stack, world, listeners, env } = scene;
  const missed = () => listeners.flatMap((listener) => missedOn(listener, world, before));
  await eventually(() => missed().length === 0 || missed().join(), "the streams have sent everything");
  expect(listeners.flatMap(doubledOn)).toEqual([]);
  expect(Math.min(world.deleted.size, world.shares.size, world.blocks.size, world.mutes.size)).toBeGreaterThan(0);
  await expectNoDeadLetters(scene);
  const report = await jsonOf<{ users: number; incomplete: number }>(stack, ["audit"], { env });
  const shared = { local: { result: "same" }, global: { result: "same" } };
  expect(report).toMatchObject({ differ: 0, shared });
  // A home whose rebuild a process of this version began, and one of the release ended, lacks the copy of follows.
  expect(report.incomplete).toBeLessThanOrEqual(2);
  expect(report.users + report.incomplete).toBe(PEOPLE.length);
}

/** Each analysis that was accepted is completed, rewarded and announced, once. */
async function expectAnalyses({ gateways, asked, listeners }: Scene): Promise<void> {
  const get = (path: string) => call(`${gateways[0]}/api/v1${path}`, { user: ASKING });
  for (const id of asked)
    await becomes(async () => expect((await get(`/timeline/analyses/${id}`)).body.status).toBe("completed"));
  await becomes(async () => {
    const { body } = await get("/xp?limit=100");
    expect(body.transactions.map(({ event_id }: { event_id: string }) => event_id).sort()).toEqual([...asked].sort());
    const events = listeners[0]?.events.filter(({ event }) => event === "analysis_completed");
    expect(events?.map(({ data }) => data["analysis_id"]).sort()).toEqual([...asked].sort());
  });
}

/** `first` and `second` are ports: upstreams of the release have the first, those of this version the second. */
async function rehearse(scene: Scene, [first, second]: readonly [number, number]): Promise<void> {
  const [release, current] = [[buildRelease(), "serve"] as const, [...program(), "serve"]];
  const { world } = scene;
  const old = await startOthers(scene, release, await startUpstreams(scene, release, first));
  await fill(scene);
  await listen(scene, LISTENERS);
  const before = new Set(world.drops.keys());
  let [upstreams, fresh]: [Service?, Version?] = [];
  await underLoad(
    scene,
    () => ask(scene, "flow"),
    () => expand(scene),
    async () => (upstreams = await startUpstreams(scene, current, second)),
    // The release shows each repost.
    async () => (fresh = await startOthers(withEnv(scene, EACH_REPOST), current, upstreams as Service)),
    () => ask(scene, "clout"),
    () => leadTo(scene, second),
  );
  await underLoad(
    scene,
    () => end(scene, old),
    () => ask(scene, "kudos"),
  );
  await underLoad(
    scene,
    async () => (upstreams = await startUpstreams(scene, release, first)),
    () => startOthers(scene, release, upstreams as Service),
    () => ask(scene, "pulse"),
    () => leadTo(scene, first),
    () => end(scene, fresh as Version),
  );
  await expectNothingLost(scene, before);
  await expectAnalyses(scene);
}

/** Brings the database to the schema of the next release while processes of the last one write. */
async function expand({ env }: Scene): Promise<void> {
  const db = openPostgres({ url: env["DATABASE_URL"] as string, poolSize: 2, name: "test" }, silent);
  await migrateBeyond(db, { posts: EXPAND });
  await db.close();
}

const isLeftOut = postgresPrograms() === undefined || !hasRelease();
if (isLeftOut)
  console.warn(`no PostgreSQL, or no commit of ${RELEASE.version} in the history: no upgrade is rehearsed`);

/** Where the libraries of the release are others, they are fetched. */
beforeAll(() => void buildRelease(), 300_000);

/** Where it runs, and how many replicas streams have there. */
const PLACES: Readonly<Record<string, readonly [() => Promise<Place>, replicas: number]>> = {
  "one server each": [() => startStack({ service: false }), 1],
  clusters: [() => startPlace(openClusters, { service: false }), 3],
};

async function openClusters(closes: (() => unknown)[]) {
  const redis = await startRedisCluster({ replicas: true });
  closes.push(() => redis.stop());
  const nats = await startNatsCluster();
  closes.push(() => nats.stop());
  return { redisUrl: redis.urls, natsUrl: nats.urls };
}

// Invariants 1, 4, 5, 7, 12.
for (const [name, [open, replicas]] of Object.entries(PLACES))
  (isLeftOut ? test.skip : test)(
    `an upgrade from ${RELEASE.version} under load, and back, loses and doubles nothing: ${name}`,
    async () => {
      const stack = await open();
      try {
        const postgres = await startPostgres();
        stack.afterServices(() => postgres.stop());
        const ports = await freePorts();
        const own = { DATABASE_URL: postgres.url, TIMELINE_NATS_REPLICAS: String(replicas) };
        await rehearse(await openScene(stack, ports, own), ports);
      } catch (error) {
        throw stack.explain(error);
      } finally {
        await stack.stop();
      }
    },
    300_000,
  );
