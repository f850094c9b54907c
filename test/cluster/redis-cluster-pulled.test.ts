import { afterEach, expect, test } from "@jest/globals";
import slotOf from "cluster-key-slot";
import { Cluster, type Redis } from "ioredis";
import { SUBJECT_OF } from "../../src/contracts/events.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { privateNats } from "../support/brokers.js";
import { moveSlot, startRedisCluster } from "../support/clusters.js";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { limited } from "../support/limits.js";
import { downIds, openReader, pagesDown, pagesUp, type Reader, upIds } from "../support/reader.js";
import { startService } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { openStreams } from "../support/streams.js";
import { created, deleted, followed, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import { startUpstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

const FOLLOWERS = Array.from({ length: 12 }, (_, number) => `f${number}`);
/** The followers of ada, who is pulled, of bob, who is tiered, and of carl, who is pushed. */
const AUDIENCES = { ada: FOLLOWERS, bob: FOLLOWERS.slice(0, 5), carl: FOLLOWERS.slice(0, 2) };
const AUTHORS = Object.keys(AUDIENCES);
const LISTENER = "f0";
/** Is in the last tier, and so written long after the listener. */
const LATER = "f4";
const ENV = {
  TIMELINE_FANOUT_TIER_THRESHOLD: "3",
  TIMELINE_FANOUT_PULL_THRESHOLD: "8",
  TIMELINE_FANOUT_CHUNK_SIZE: "4",
  ...limited({ recentReadersMs: 0, restRate: 1 }),
};
const READERS = [...FOLLOWERS, "late"];
const START = Date.now() - 600_000;
const REGISTRY = "timeline:x:pulled";

const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

async function open({ replicas = false, restRate = 1 } = {}) {
  const cluster = await startRedisCluster({ replicas });
  closes.push(() => cluster.stop());
  const nats = await privateNats();
  closes.push(() => nats.stop());
  const client = new Cluster(cluster.urls.split(","), { clusterRetryStrategy: () => 200 });
  client.on("error", () => undefined);
  closes.push(() => client.disconnect());
  const world = new World();
  for (const [author, audience] of Object.entries(AUDIENCES))
    for (const follower of audience) world.follow(follower, author);
  const upstreams = await startUpstreams(world);
  closes.push(() => upstreams.stop());
  const { usersAddress, postsAddress } = upstreams;
  const env = { ...ENV, ...limited({ recentReadersMs: 0, restRate }) };
  const serviceOptions = { redisUrl: cluster.urls, natsUrl: nats.url, usersAddress, postsAddress, env };
  const service = await startService(serviceOptions);
  closes.push(() => service.stop());
  const streams = await openStreams(nats.url);
  closes.push(() => streams.close());
  const reads = openReader(service.grpcAddress);
  closes.push(() => reads.close());
  const redis = client as unknown as Redis;
  const posted: string[] = [];
  return {
    ...{ cluster, redis, world, service, serviceOptions, streams, reads, posted },
    pagesAgree: () => becomes(() => expectPages(world, reads), 90_000),
    publish: (event: TimelineEvent) => streams.connection.jetstream().publish(...admissionOf(event)),
    async post(author: string): Promise<void> {
      const drop_id = `${author}-${posted.length}`;
      const drop = { drop_id, user_id: author, visibility: "public", created_at: START + posted.length } as const;
      posted.push(drop_id);
      world.post(drop);
      await this.publish(created(drop));
    },
    becomesState: (author: string, state: string) =>
      eventually(
        async () => (await redis.hget(REGISTRY, author))?.split(":")[0] === state,
        `${author} is ${state}`,
        60_000,
      ),
  };
}

/** Into the log itself: what a failing Pub/Sub loses is another matter. */
function admissionOf({ channel, payload }: TimelineEvent): [string, string, { msgID: string }] {
  const body = JSON.stringify(payload);
  return [SUBJECT_OF[channel], body, { msgID: channel + body }];
}

/** Turns the pages of every reader both ways, and compares them with what PostService and UserService say. */
async function expectPages(world: World, reads: Reader): Promise<void> {
  for (const reader of READERS) {
    const expected = world.homeOf(reader).map(({ drop_id }) => drop_id);
    const read = (query: object = {}) => reads.home(reader, query);
    const down = await pagesDown(read, { limit: 4 });
    const up = expected.length === 0 ? [] : await pagesUp(read, { limit: 4, min_id: expected.at(-1) as string });
    const degraded = [...down, ...up].some((page) => page.degraded);
    const seen = { reader, degraded, down: downIds(down), up: upIds(up) };
    expect(seen).toEqual({ reader, degraded: false, down: expected, up: expected.slice(0, -1) });
  }
}

/** Whom they follow changes, and a drop of each author is deleted; returns these drops. */
async function change({ world, publish, posted }: Scene): Promise<readonly string[]> {
  for (const author of ["ada", "bob"]) {
    await publish(followed("late", author, world.follow("late", author)));
    await publish(unfollowed("f1", author, world.unfollow("f1", author)));
  }
  const gone = posted.slice(AUTHORS.length, 2 * AUTHORS.length);
  for (const drop of gone) {
    world.remove(drop);
    await publish(deleted(drop, drop.split("-")[0] as string));
  }
  return gone;
}

type Scene = Awaited<ReturnType<typeof open>>;

// Invariant 6.
test("pages of a cluster are the same with authors pulled, tiered and pushed, and after all are pushed again", async () => {
  const scene = await open();
  const { redis, world, service, serviceOptions, streams, posted, pagesAgree, becomesState } = scene;
  const stream = await openEvents(service.httpUrl, LISTENER);
  closes.push(() => stream.close());
  const post = (author: string) => scene.post(author);
  const idsIn = async (user: string) => (await held(redis, homeKey(user))).entries.map(([id]) => id);

  for (const author of AUTHORS) await post(author);
  await becomesState("ada", "pulled");
  await becomesState("bob", "tiered");
  await pagesAgree();
  for (let round = 0; round < 4; round++) for (const author of AUTHORS) await post(author);
  await pagesAgree();
  expect(await idsIn(LATER)).not.toContain(posted[AUTHORS.indexOf("ada") + AUTHORS.length]);
  expect(await idsIn(LISTENER)).toContain(posted[AUTHORS.indexOf("carl") + AUTHORS.length]);
  await eventually(() => posted.every((drop) => stream.drops().includes(drop)), "the listener is told of each drop");

  const taken = () =>
    stream.events.filter(({ event }) => event === "drop_deleted").map(({ data }) => String(data["drop_id"]));
  const gone = await change(scene);
  await pagesAgree();
  await becomes(async () => expect(taken().toSorted()).toEqual(gone.toSorted()));

  for (const author of ["ada", "bob"]) await jsonOf({ serviceOptions }, ["author", "push", author]);
  for (const author of ["ada", "bob"]) await becomesState(author, "pushed");
  await pagesAgree();
  for (const reader of READERS)
    expect([reader, await idsIn(reader)]).toEqual([reader, world.homeOf(reader).map(({ drop_id }) => drop_id)]);
  await post("ada");
  await pagesAgree();
  expect(await idsIn(LATER)).toContain(posted.at(-1));
  expect(await streams.count("DLQ")).toBe(0);
}, 240_000);

/** The master that holds a key, and the next one. */
function mastersOf({ cluster }: Scene, key: string): readonly [Broker, Broker] {
  const at = [5_460, 10_922, 16_383].findIndex((last) => slotOf(key) <= last);
  return [cluster.masters[at] as Broker, cluster.masters[(at + 1) % 3] as Broker];
}

const DISTURBANCES: readonly [name: string, replicas: boolean, disturb: (scene: Scene) => Promise<unknown>][] = [
  ["the master of the registry is killed", true, async (scene) => mastersOf(scene, REGISTRY)[0].kill("SIGKILL")],
  [
    "the slots of the registry, of authors and of homes move",
    false,
    async (scene) => {
      const keys = [
        REGISTRY,
        "timeline:author:ada",
        "timeline:author:bob",
        "timeline:tombstones",
        ...READERS.map(homeKey),
      ];
      for (const key of new Map(keys.map((one) => [slotOf(one), one])).values())
        await moveSlot(scene.cluster, slotOf(key), ...mastersOf(scene, key));
    },
  ],
];

// Invariant 6.
test.each(DISTURBANCES)(
  "%s under load: pages of pulled and tiered authors are whole again",
  async (_, replicas, disturb) => {
    const scene = await open({ replicas, restRate: 100 });
    const { pagesAgree, becomesState, streams } = scene;
    const load = async (rounds: number) => {
      for (let round = 0; round < rounds; round++) for (const author of AUTHORS) await scene.post(author);
    };
    await load(1);
    await becomesState("ada", "pulled");
    await becomesState("bob", "tiered");
    await pagesAgree();
    await load(10);
    const disturbed = disturb(scene);
    await load(20);
    await change(scene);
    await disturbed;
    await pagesAgree();
    await becomesState("ada", "pulled");
    await becomesState("bob", "tiered");
    await scene.post("ada");
    await pagesAgree();
    expect(await streams.count("DLQ")).toBe(0);
  },
  300_000,
);
