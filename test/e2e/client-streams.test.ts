import { expect } from "@jest/globals";
import type { PositionStorage, StreamName } from "../../clients/typescript/src/index.js";
import { openApi } from "../support/api.js";
import {
  addressesOf,
  areOpen,
  BEAT_MS,
  type Heard,
  hear,
  hearAll,
  interest,
  type Listening,
  PEOPLE,
  postFor,
} from "../support/client-streams.js";
import { eventually } from "../support/eventually.js";
import { TcpProxy } from "../support/proxy.js";
import { launchService, type Service, untilReady } from "../support/service.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import { seconds, tokenOf } from "../support/tokens.js";

const onStack = sharedStack(PEOPLE);

/** An author, and users who hear of the author's drops on all of their streams. */
async function cast(stack: SharedStack, users: number) {
  const api = openApi(stack.service.grpcAddress);
  stack.defer(() => api.close());
  const author = stack.id("bob");
  const names = Array.from({ length: users }, (_, number) => stack.id(`ada-${number}`));
  const streams = await Promise.all(names.map(async (user) => ({ user, all: await interest(api, user, author) })));
  return {
    streams: streams.flatMap(({ user, all }) => all.map((name) => ({ user, name }))),
    post: (count: number) => postFor(api, author, names, count),
  };
}

const listen = (stack: SharedStack, listening: Listening): Heard => {
  const heard = hear(listening);
  stack.defer(heard.stream.close);
  return heard;
};

const gatewayOf = (stack: SharedStack): Promise<Service> =>
  stack.start({ roles: "gateway", env: addressesOf(stack.service) });

/** Each drop once on every stream; those that are published together land in any order. */
function expectAll(all: readonly Heard[], wanted: readonly string[]): void {
  for (const { name, drops, resets } of all)
    expect([name, drops.toSorted(), resets]).toEqual([name, wanted.toSorted(), []]);
}

// Invariant 7.
onStack("streams of each kind that are cut in the middle of events lose none and repeat none", async (stack) => {
  const { httpUrl } = stack.service;
  // An event has some 110 bytes, a heartbeat 50.
  const places = [1, 23, 51, 87, 101, 140];
  const { streams, post } = await cast(stack, places.length);
  const cut = await Promise.all(
    streams.map(async ({ user, name }, number) => {
      const proxy = await TcpProxy.open(Number(new URL(httpUrl).port));
      stack.defer(() => proxy.close());
      const place = places[Math.floor(number / KINDS)] as number;
      return Object.assign(listen(stack, { url: proxy.url("http"), user, name }), { proxy, place });
    }),
  );
  const all: string[] = [];
  for (const round of [1, 2]) {
    await eventually(() => cut.every(({ downs, opened }) => downs.length === round - 1 && opened === round), "open");
    for (const { proxy, place } of cut) proxy.cutAfter(place * round);
    all.push(...(await post(4)));
    await eventually(() => cut.every(({ downs }) => downs.length === round), "all are cut");
  }
  await hearAll(cut, all);
  expectAll(cut, all);
  for (const { downs } of cut) expect(downs).toEqual(["the stream ended", "the stream ended"]);
});

/** Number of streams of each user. */
const KINDS = 5;

// Invariant 7.
onStack("streams of each kind go on after their gateway was restarted, and after it was killed", async (stack) => {
  const { streams, post } = await cast(stack, 1);
  let gateway = await gatewayOf(stack);
  const { httpUrl: url } = gateway;
  const heard = streams.map((each) => listen(stack, { url, ...each }));
  await areOpen(heard);
  const all = await post(3);
  await hearAll(heard, all);
  for (const end of ["stop", "crash"] as const) {
    await gateway[end]();
    all.push(...(await post(3)));
    const env = { ...PEOPLE.env, ...addressesOf(stack.service), TIMELINE_HTTP_ADDR: new URL(url).host };
    const launched = await launchService({ ...stack.serviceOptions, roles: "gateway", env });
    gateway = { ...launched, httpUrl: url };
    stack.defer(() => launched.stop());
    await untilReady(gateway);
    await hearAll(heard, all);
  }
  expectAll(heard, all);
});

// Invariant 7.
onStack(
  "a program that is reloaded again and again in the middle of traffic hears of each drop once on each stream",
  async (stack) => {
    const { streams, post } = await cast(stack, 1);
    const { httpUrl: url } = stack.service;
    const stored = new Map<string, string>();
    const storage: PositionStorage = {
      getItem: async (key) => stored.get(key) ?? null,
      setItem: (key, id) => void stored.set(key, id),
    };
    const all: string[] = [];
    const before = new Map<StreamName, string[]>(streams.map(({ name }) => [name, []]));
    const run = (): Heard[] => {
      const heard = streams.map((each) => listen(stack, { url, storage, ...each }));
      for (const each of heard) each.drops.push(...(before.get(each.name) ?? []));
      return heard;
    };
    for (let round = 1; round <= 6; round++) {
      const heard = run();
      await areOpen(heard);
      all.push(...(await post(8)));
      await hearAll(heard, all.slice(0, all.length - 8 + round));
      for (const { name, stream, drops, resets } of heard) {
        stream.close();
        before.set(name, drops);
        expect(resets).toEqual([]);
      }
    }
    const last = run();
    await hearAll(last, all);
    expectAll(last, all);
    expect([...stored.keys()].toSorted()).toEqual(streams.map(({ name }) => `avion-timeline:${name}`).toSorted());
  },
);

onStack("streams of each kind outlive their tokens: they end with each, and go on with the next", async (stack) => {
  const { streams, post } = await cast(stack, 1);
  const { httpUrl: url } = stack.service;
  const heard = await Promise.all(
    streams.map(async ({ user, name }) => {
      const refused: Array<string | undefined> = [];
      let current = await tokenOf(user, { exp: seconds() - 10 });
      const token = async (old?: string): Promise<string> => {
        if (old === current) {
          refused.push(old);
          current = await tokenOf(user, { exp: seconds() + (refused.length === 1 ? 3 : 3_600) });
        }
        return current;
      };
      return Object.assign(listen(stack, { url, user, name, token }), { refused });
    }),
  );
  await areOpen(heard);
  const all = await post(1);
  await eventually(() => heard.every(({ downs }) => downs.length === 1), "the tokens have expired");
  all.push(...(await post(1)));
  await hearAll(heard, all);
  expectAll(heard, all);
  for (const { refused } of heard) expect(refused).toHaveLength(2);
});

onStack("a position that makes no sense leads to a reset on streams of each kind, which go on", async (stack) => {
  const { streams, post } = await cast(stack, 1);
  const { httpUrl: url } = stack.service;
  const heard = streams.map((each) => listen(stack, { url, lastEventId: "7-of another service", ...each }));
  await eventually(() => heard.every(({ resets }) => resets.length === 1), "all are reset");
  const all = await post(1);
  await hearAll(heard, all);
  for (const { drops, resets, opened } of heard)
    expect([drops, resets, opened]).toEqual([all, ["unknown_position"], 1]);
});

// Invariant 7.
onStack("connections that fall silent are left for others", async (stack) => {
  const { streams, post } = await cast(stack, 1);
  const proxy = await TcpProxy.open(Number(new URL(stack.service.httpUrl).port));
  stack.defer(() => proxy.close());
  const heard = streams.map((each) => listen(stack, { url: proxy.url("http"), idleMs: 10 * BEAT_MS, ...each }));
  await areOpen(heard);
  proxy.silence();
  const all = await post(3);
  await hearAll(heard, all);
  expectAll(heard, all);
  for (const { downs } of heard) expect(downs).toEqual([`nothing came for ${10 * BEAT_MS} ms`]);
});
