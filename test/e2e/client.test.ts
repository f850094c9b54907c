import { expect } from "@jest/globals";
import {
  type ClientOptions,
  type PositionStorage,
  type StreamEvents,
  type StreamOptions,
  TimelineClient,
  type TimelineStream,
} from "../../clients/typescript/src/index.js";
import { Visibility } from "../../src/gen/avion/posts.js";
import { connectWorld } from "../../src/sandbox/world/world.grpc.js";
import { openApi } from "../support/api.js";
import { becomes, eventually } from "../support/eventually.js";
import { limited } from "../support/limits.js";
import { TcpProxy } from "../support/proxy.js";
import { launchService, type Service, untilReady } from "../support/service.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import { created, deleted, edited } from "../support/timeline-events.js";
import { seconds, tokenOf } from "../support/tokens.js";

const BEAT_MS = 200;
const env = limited({ gateway: { retryMs: [10, 20], heartbeatMs: [BEAT_MS, BEAT_MS] } });
const onStack = sharedStack({ roles: "bridge,fanout,api", env });

const gatewayOf = (stack: SharedStack): Promise<Service> =>
  stack.start({ roles: "gateway", env: { ...env, TIMELINE_API_ADDR: stack.service.grpcAddress } });

interface Heard {
  readonly stream: TimelineStream;
  readonly drops: string[];
  readonly resets: string[];
  readonly downs: string[];
  opened: number;
}

interface Listening extends StreamOptions {
  readonly user: string;
  readonly token?: ClientOptions["token"];
}

function listen(stack: SharedStack, url: string, { user, token = () => tokenOf(user), ...options }: Listening): Heard {
  const stream = new TimelineClient({ url, token }).stream("home", options);
  stack.defer(stream.close);
  const heard: Heard = { stream, drops: [], resets: [], downs: [], opened: 0 };
  stream.on("new_drop", ({ data }) => heard.drops.push(data.drop_id));
  stream.on("reset", ({ data }) => heard.resets.push(data.reason));
  stream.on("down", ({ error }) => heard.downs.push(error.message));
  stream.on("open", () => heard.opened++);
  return heard;
}

let posted = 0;

async function post(stack: SharedStack, user: string, count: number): Promise<string[]> {
  const drops = Array.from({ length: count }, () => {
    posted++;
    return { drop_id: `drop-${posted}`, user_id: user, visibility: "followers" as const, created_at: Date.now() };
  });
  stack.world.post(...drops);
  await stack.publish(...drops.map(created));
  return drops.map(({ drop_id }) => drop_id);
}

const hears = ({ drops, downs }: Heard, wanted: readonly string[]): Promise<void> =>
  eventually(
    () => drops.length >= wanted.length || `${drops.length} of ${wanted.length}; ${downs.join(", ")}`,
    "the client hears of all",
  );

/** Each drop once; those that are published together land in any order. */
function expectAll({ drops, resets }: Heard, wanted: readonly string[]): void {
  expect(drops.toSorted()).toEqual(wanted.toSorted());
  expect(resets).toEqual([]);
}

onStack("a client reads pages in both directions, and hears of new, edited and deleted drops", async (stack) => {
  const [user, author] = [stack.id("ada"), stack.id("bob")];
  stack.world.follow(user, author);
  const { httpUrl: url } = await gatewayOf(stack);
  const client = new TimelineClient({ url, token: () => tokenOf(user) });
  const heard = listen(stack, url, { user });
  const told: unknown[] = [];
  heard.stream.on("drop_edited", ({ data }) => told.push(data)).on("drop_deleted", ({ data }) => told.push(data));
  await eventually(() => heard.opened === 1, "it is open");
  const drops = await post(stack, author, 5);
  await hears(heard, drops);
  await stack.streams.settled(5);
  const first = await client.page("home", { limit: 3 });
  const older = await client.page("home", { limit: 3, max_id: first.next_max_id });
  expect([...first.drop_ids, ...older.drop_ids].toSorted()).toEqual(drops.toSorted());
  expect([first.has_more, older.has_more]).toEqual([true, false]);
  const newer = await client.page("home", { limit: 3, min_id: older.prev_min_id });
  expect(newer.drop_ids).toEqual(first.drop_ids);
  const [drop = ""] = drops;
  await stack.publish(edited(drop, author, 2));
  await eventually(() => told.length === 1, "it hears of the edit");
  await stack.publish(deleted(drop, author));
  await eventually(() => told.length === 2, "it hears of the deletion");
  expect(told).toEqual([{ drop_id: drop, revision: 2 }, { drop_id: drop }]);
});

onStack("a page whose query is wrong is refused at once, and names the field", async (stack) => {
  const { httpUrl: url } = await gatewayOf(stack);
  const client = new TimelineClient({ url, token: () => tokenOf("ada") });
  await expect(client.page("home", { limit: 101 })).rejects.toMatchObject({
    status: 400,
    isFinal: true,
    problem: { errors: [{ field: "limit", detail: expect.any(String) }] },
  });
});

// Invariant 7.
onStack("streams that are cut in the middle of events lose none and repeat none", async (stack) => {
  const { httpUrl } = await gatewayOf(stack);
  const cutTwice = async (place: number): Promise<void> => {
    const user = stack.id(`ada-${place}`);
    const proxy = await TcpProxy.open(Number(new URL(httpUrl).port));
    stack.defer(() => proxy.close());
    const heard = listen(stack, proxy.url("http"), { user });
    const all: string[] = [];
    for (const round of [1, 2]) {
      await eventually(() => heard.opened === round, "it is open");
      proxy.cutAfter(place * round);
      all.push(...(await post(stack, user, 4)));
      await eventually(() => heard.downs.length === round, "it is cut");
    }
    await hears(heard, all);
    expectAll(heard, all);
    expect(heard.downs).toEqual(["the stream ended", "the stream ended"]);
  };
  // An event has some 110 bytes, a heartbeat 50.
  await Promise.all([1, 9, 23, 38, 51, 66, 87, 101, 125, 140].map(cutTwice));
});

// Invariant 7.
onStack("a stream goes on after its gateway was restarted, and after it was killed", async (stack) => {
  const user = stack.id("ada");
  let gateway = await gatewayOf(stack);
  const heard = listen(stack, gateway.httpUrl, { user });
  await eventually(() => heard.opened === 1, "it is open");
  const all = await post(stack, user, 3);
  await hears(heard, all);
  for (const end of ["stop", "crash"] as const) {
    const { httpUrl } = gateway;
    await gateway[end]();
    all.push(...(await post(stack, user, 3)));
    const addresses = { TIMELINE_HTTP_ADDR: new URL(httpUrl).host, TIMELINE_API_ADDR: stack.service.grpcAddress };
    const launched = await launchService({
      ...stack.serviceOptions,
      roles: "gateway",
      env: { ...env, ...addresses },
    });
    gateway = { ...launched, httpUrl };
    stack.defer(() => launched.stop());
    await untilReady(gateway);
    await hears(heard, all);
  }
  expectAll(heard, all);
});

// Invariant 7.
onStack(
  "a program that is reloaded again and again in the middle of traffic hears of each drop once",
  async (stack) => {
    const user = stack.id("ada");
    const { httpUrl } = await gatewayOf(stack);
    const stored = new Map<string, string>();
    const storage: PositionStorage = {
      getItem: async (key) => stored.get(key) ?? null,
      setItem: (key, id) => void stored.set(key, id),
    };
    const all: string[] = [];
    const drops: string[] = [];
    const resets: string[] = [];
    for (let round = 1; round <= 6; round++) {
      const heard = listen(stack, httpUrl, { user, storage, storageKey: user });
      await eventually(() => heard.opened === 1, "it is open");
      all.push(...(await post(stack, user, 8)));
      await eventually(() => drops.length + heard.drops.length >= all.length - 8 + round, "it hears of some");
      heard.stream.close();
      drops.push(...heard.drops);
      resets.push(...heard.resets);
    }
    const last = listen(stack, httpUrl, { user, storage, storageKey: user });
    await eventually(() => drops.length + last.drops.length >= all.length, "it hears of the others");
    expectAll({ ...last, drops: [...drops, ...last.drops], resets: [...resets, ...last.resets] }, all);
    expect([...stored.keys()]).toEqual([user]);
  },
);

onStack("a stream outlives its tokens: it ends with each, and goes on with the next", async (stack) => {
  const user = stack.id("ada");
  const { httpUrl } = await gatewayOf(stack);
  const refused: Array<string | undefined> = [];
  let current = await tokenOf(user, { exp: seconds() - 10 });
  const token = async (old?: string): Promise<string> => {
    if (old === current) {
      refused.push(old);
      current = await tokenOf(user, { exp: seconds() + (refused.length === 1 ? 3 : 3_600) });
    }
    return current;
  };
  const heard = listen(stack, httpUrl, { user, token });
  await eventually(() => heard.opened === 1, "it is open");
  const all = await post(stack, user, 1);
  await hears(heard, all);
  await eventually(() => heard.downs.length === 1, "the token has expired");
  all.push(...(await post(stack, user, 1)));
  await hears(heard, all);
  expectAll(heard, all);
  expect(refused).toHaveLength(2);
});

onStack("a position that makes no sense leads to a reset, and the stream goes on", async (stack) => {
  const user = stack.id("ada");
  const { httpUrl } = await gatewayOf(stack);
  const heard = listen(stack, httpUrl, { user, lastEventId: "7-of another service" });
  await eventually(() => heard.resets.length === 1, "it is reset");
  const [drop = ""] = await post(stack, user, 1);
  await hears(heard, [drop]);
  expect([heard.drops, heard.resets, heard.opened]).toEqual([[drop], ["unknown_position"], 1]);
});

// Invariant 7.
onStack("a connection that falls silent is left for another one", async (stack) => {
  const user = stack.id("ada");
  const { httpUrl } = await gatewayOf(stack);
  const proxy = await TcpProxy.open(Number(new URL(httpUrl).port));
  stack.defer(() => proxy.close());
  const heard = listen(stack, proxy.url("http"), { user, idleMs: 10 * BEAT_MS });
  await eventually(() => heard.opened === 1, "it is open");
  proxy.silence();
  const all = await post(stack, user, 3);
  await hears(heard, all);
  expectAll(heard, all);
  expect(heard.downs).toEqual([`nothing came for ${10 * BEAT_MS} ms`]);
});

const withPeople = sharedStack({
  roles: "users,posts,fanout,api,gateway,notifications",
  data: true,
  env: { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" },
});

withPeople(
  "a client hears of notifications, lists and counts them, and marks them as read on all streams",
  async (stack) => {
    const world = connectWorld(stack.service.grpcAddress);
    stack.defer(world.close);
    for (const user_id of ["ada", "bob"]) await world.users.setProfile({ user_id, display_name: user_id });
    const client = new TimelineClient({ url: stack.service.httpUrl, token: () => tokenOf("ada") });
    const stream = client.stream("home");
    stack.defer(stream.close);
    const [told, read]: [StreamEvents["notification"][], string[]] = [[], []];
    let opened = 0;
    stream.on("open", () => opened++);
    stream.on("notification", ({ data }) => told.push(data));
    stream.on("notifications_read", ({ data }) => read.push(data.up_to_id));
    await eventually(() => opened === 1, "it is open");
    const { drop } = await world.posts.createDrop({ user_id: "ada", visibility: Visibility.PUBLIC, body: "Hello" });
    const { drop_id = "" } = drop ?? {};
    await world.users.follow({ follower_id: "bob", following_id: "ada" });
    await world.posts.likeDrop({ user_id: "bob", drop_id });
    await eventually(() => told.length === 2 || JSON.stringify(told), "it hears of both");
    const { notifications, has_more } = await client.notifications();
    expect([notifications.toSorted(byKind), has_more]).toEqual([told.toSorted(byKind), false]);
    expect(told.toSorted(byKind)).toMatchObject([
      { kind: "FOLLOW", actor_id: "bob" },
      { kind: "LIKE", actor_id: "bob", drop_id },
    ]);
    const likes = await client.notifications({ kinds: ["LIKE", "REPLY"], limit: 5 });
    expect(likes.notifications.map(({ kind }) => kind)).toEqual(["LIKE"]);
    expect((await client.notifications({ kinds: [], max_id: "" })).notifications).toHaveLength(2);
    const { count, newest_id } = await client.unread();
    expect([count, newest_id]).toEqual([2, notifications[0]?.id]);
    await client.markRead(newest_id);
    await eventually(() => read.length === 1, "the stream says it");
    expect([read, (await client.unread()).count]).toEqual([[newest_id], 0]);
  },
);

withPeople("a client reads a list of its user, and nobody else's", async (stack) => {
  const api = openApi(stack.service.grpcAddress);
  stack.defer(() => api.close());
  const [owner, member] = [stack.id("ada"), stack.id("bob")];
  const list = await api.createList(owner, member);
  const { drop_id } = await api.post(member);
  const clientOf = (user: string) => new TimelineClient({ url: stack.service.httpUrl, token: () => tokenOf(user) });
  await becomes(async () =>
    expect((await clientOf(owner).page(`list:${list}`, { limit: 5 })).drop_ids).toEqual([drop_id]),
  );
  await expect(clientOf(member).page(`list:${list}`)).rejects.toMatchObject({ status: 404, isFinal: true });
  await expect(clientOf(owner).page("list:../home")).rejects.toMatchObject({ status: 404 });
});

const byKind = (one: { readonly kind: string }, other: { readonly kind: string }): number =>
  one.kind.localeCompare(other.kind);
