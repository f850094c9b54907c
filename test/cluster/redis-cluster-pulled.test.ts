import { afterEach, expect, test } from "@jest/globals";
import { Cluster, type Redis } from "ioredis";
import { privateNats } from "../support/brokers.js";
import { startRedisCluster } from "../support/clusters.js";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
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
  TIMELINE_FANOUT_RECENT_DAYS: "0",
  TIMELINE_FANOUT_REST_RATE: "1",
};
const READERS = [...FOLLOWERS, "late"];
const START = Date.now() - 600_000;

const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

async function open() {
  const cluster = await startRedisCluster({ replicas: false });
  closes.push(() => cluster.stop());
  const nats = await privateNats();
  closes.push(() => nats.stop());
  const client = new Cluster(cluster.urls.split(","));
  closes.push(() => client.disconnect());
  const world = new World();
  for (const [author, audience] of Object.entries(AUDIENCES))
    for (const follower of audience) world.follow(follower, author);
  const upstreams = await startUpstreams(world);
  closes.push(() => upstreams.stop());
  const { usersAddress, postsAddress } = upstreams;
  const serviceOptions = { redisUrl: cluster.urls, natsUrl: nats.url, usersAddress, postsAddress, env: ENV };
  const service = await startService(serviceOptions);
  closes.push(() => service.stop());
  const streams = await openStreams(nats.url);
  closes.push(() => streams.close());
  const reads = openReader(service.grpcAddress);
  closes.push(() => reads.close());
  const stream = await openEvents(service.httpUrl, LISTENER);
  closes.push(() => stream.close());
  return { redis: client as unknown as Redis, world, service, serviceOptions, streams, reads, stream };
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

/** A node of a cluster counts its own subscribers only: whether somebody listens cannot be told. */
const publish = (redis: Redis, { channel, payload }: TimelineEvent) => redis.publish(channel, JSON.stringify(payload));

test("pages of a cluster are the same with authors pulled, tiered and pushed, and after all are pushed again", async () => {
  const { redis, world, serviceOptions, streams, reads, stream } = await open();
  const posted: string[] = [];
  const post = async (author: string): Promise<void> => {
    const drop_id = `${author}-${posted.length}`;
    const drop = { drop_id, user_id: author, visibility: "public", created_at: START + posted.length } as const;
    posted.push(drop_id);
    world.post(drop);
    await publish(redis, created(drop));
  };
  const pagesAgree = () => becomes(() => expectPages(world, reads), 60_000);
  const becomesState = (author: string, state: string) =>
    eventually(
      async () => (await redis.hget("timeline:x:pulled", author))?.split(":")[0] === state,
      `${author} is ${state}`,
      60_000,
    );
  const idsIn = async (user: string) => (await held(redis, homeKey(user))).entries.map(([id]) => id);

  for (const author of AUTHORS) await post(author);
  await becomesState("ada", "pulled");
  await becomesState("bob", "tiered");
  await pagesAgree();
  for (let round = 0; round < 4; round++) for (const author of AUTHORS) await post(author);
  await pagesAgree();
  const [, , , pulledDrop, tieredDrop, pushedDrop] = posted as [string, string, string, string, string, string];
  expect(await idsIn(LATER)).not.toContain(pulledDrop);
  expect(await idsIn(LISTENER)).toContain(pushedDrop);
  await eventually(() => posted.every((drop) => stream.drops().includes(drop)), "the listener is told of each drop");

  for (const author of ["ada", "bob"]) {
    await publish(redis, followed("late", author, world.follow("late", author)));
    await publish(redis, unfollowed("f1", author, world.unfollow("f1", author)));
  }
  await pagesAgree();
  for (const drop of [pulledDrop, tieredDrop, pushedDrop]) {
    world.remove(drop);
    await publish(redis, deleted(drop, drop.split("-")[0] as string));
  }
  const taken = () =>
    stream.events.filter(({ event }) => event === "drop_deleted").map(({ data }) => String(data["drop_id"]));
  // Before a page is read: a read takes a deleted drop out of a home, and then its reader is not among those who have it.
  await becomes(async () => expect(taken().toSorted()).toEqual([pulledDrop, tieredDrop, pushedDrop].toSorted()));
  await pagesAgree();

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
