import { beforeAll, beforeEach, expect } from "@jest/globals";
import type { Redis } from "ioredis";
import type { Relation } from "../../../src/gen/avion/users.js";
import { silent } from "../../../src/kernel/logger.js";
import { DAY, HOUR, MINUTE, SECOND } from "../../../src/kernel/time.js";
import { applyTopology } from "../../../src/platform/nats/topology.js";
import { mastersOf } from "../../../src/platform/redis/clusters.js";
import { audienceOf } from "../../../src/state/index.js";
import { classify } from "../../../src/state/kinds.js";
import type { Upstreams } from "../../../src/upstreams/upstreams.grpc.js";
import { natsOfFile } from "../nats-of-file.js";
import { type SERVERS, serversOf } from "../servers.js";
import { stateOn } from "../state.js";

const MEL = { target_id: "mel", reposts_only: false, expires_at: 0, blocked: false };

/** Everybody mutes mel. */
const UPSTREAMS = {
  hidden: async () => ({ hidden: [MEL], next: "" }),
  hiddenOfMany: async () => new Map(),
  relations: async (_: string, targets: readonly string[]) =>
    targets.map((target_id) => ({ target_id, muting: target_id === "mel", mute_expires_at: 0 }) as Relation),
  counts: async () => [],
  leaveOut: () => undefined,
} as unknown as Upstreams;

const NO_FOLLOWS = { fillPulls: async () => undefined, isFollowing: async () => false, findLists: async () => [] };

/** Times of the tests begin here, in ms since the epoch. */
export const AT = 1_600_000_000_000;

export const entry = (drop: string, at = 0) => ({ drop, score: AT + at, by: { author: "bob" } });
export const toHomes = (users: readonly string[], ...drops: readonly string[]) => [
  { audience: audienceOf(users), entries: drops.map((drop, at) => entry(drop, at)) },
];
export const moment = () => ({ now: Date.now(), listedSince: Date.now() - 600_000 });

export async function entire<T>(pages: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const page of pages) all.push(page);
  return all;
}

export type Scene = ReturnType<typeof sceneOf>;

/** The state on servers that are empty before each test. */
export function sceneOf(name: keyof typeof SERVERS) {
  const bench = serversOf(name);
  const nats = natsOfFile();
  beforeAll(() => applyTopology(nats.manager, { replicas: 1 }, silent));
  beforeEach(() => nats.manager.streams.purge("KV_ERASED"));
  return {
    isCluster: name !== "one server",
    /** Opens the state as another process would, with what reads and fan-out open of it. */
    open: (env: NodeJS.ProcessEnv = {}) => {
      const state = stateOn(bench.scripts, nats, env);
      const registry = state.streams.openRegistry({ podName: "pod", ttlMs: 60_000, windowMs: 600_000 });
      const readAuthorDrops = async () => ({ drops: [], next: undefined });
      const sources = { upstreams: UPSTREAMS, readAuthorDrops, ...NO_FOLLOWS, activeOnly: false };
      const listen = async (user: string, unique = "x") => {
        const stream = { id: `${unique}.${user}`, user, createdAt: AT, listing: "" };
        const [listing = ""] = await registry.register([stream], moment());
        return { ...stream, listing };
      };
      return { ...state, ...state.openReads(UPSTREAMS), ...state.openWrites(sources), registry, listen };
    },
    encodingOf: (key: string) => bench.client.object("ENCODING", key),
    /** Reads a line for each key that is left on any server, one for all parts of a kind. */
    left: async (): Promise<readonly string[]> => {
      const lines = new Map<string, Set<string>>();
      for (const node of mastersOf(bench.client))
        for (const key of await node.keys("*")) {
          const [name, contents] = await lineOf(node, key);
          lines.set(name, new Set([...(lines.get(name) ?? []), ...contents]));
        }
      const left = [...lines].map(([name, contents]) => `${name}: ${[...contents].sort().join(" ")}`);
      return left.filter((line) => line !== NOBODY_ERASED).sort();
    },
  };
}

/** Writers ask who is erased, at some places in a cluster only. */
const NOBODY_ERASED = "timeline:x:erased (for ever): ~floor=0";

async function lineOf(node: Redis, key: string): Promise<[name: string, contents: readonly string[]]> {
  const type = (await node.type(key)).replace("zset", "sorted set");
  expect([key, classify(key)?.kind.type]).toEqual([key, type]);
  const isName = /listing|generation/.test(key);
  const contents = isName ? ["random"] : ((await CONTENTS[type]?.(node, key)) ?? []);
  // An index of a cluster has parts.
  const name = key.replace(/^(sse_recent:\w+):\{\d+\}/, "$1").replace(/\{\d+\}/, "{n}");
  return [
    `${name} (${inWords(await node.pttl(key))})`,
    contents.map(settled).filter((one) => !one.startsWith("~sweep=")),
  ];
}

const CONTENTS: Readonly<Record<string, (node: Redis, key: string) => Promise<readonly string[]>>> = {
  string: async (node, key) => [(await node.get(key)) as string],
  set: async (node, key) => node.smembers(key),
  hash: async (node, key) => Object.entries(await node.hgetall(key)).map(([field, value]) => `${field}=${value}`),
  "sorted set": async (node, key) => {
    const flat = await node.zrange(key, "0", "-1", "WITHSCORES");
    return flat.flatMap((member, at) => (at % 2 === 0 ? `${member}=${flat[at + 1]}` : []));
  },
};

/** Units with the steps to which times to live are rounded up: tests take some seconds. */
const UNITS = [
  ["d", DAY, DAY / 10],
  ["h", HOUR, HOUR / 10],
  ["min", MINUTE, MINUTE],
  ["s", SECOND, 5 * SECOND],
] as const;

function inWords(ms: number): string {
  if (ms < 0) return "for ever";
  const [unit, size, step] = UNITS.find(([, each]) => ms > 0.9 * each) ?? UNITS[3];
  return `${(Math.ceil((ms - SECOND) / step) * step) / size} ${unit}`;
}

const isNow = (ms: number): boolean => Math.abs(ms - Date.now()) < MINUTE;

function settledTime(digits: string): string {
  if (digits.startsWith("1600000000")) return digits.replace("1600000000", "AT+");
  const ms = Number(digits.slice(0, 13)) * (digits.length === 10 ? SECOND : 1);
  const days = Math.round((2 * (Date.now() - ms)) / DAY) / 2;
  if (!isNow(ms + days * DAY)) return digits;
  return days === 0 ? "now" : `${days} d ago`;
}

/** Replaces what no two runs have in common, and shortens times from AT on. */
const settled = (text: string): string =>
  text
    .replaceAll(/[\da-f]{40}|[\da-f]{8}-[\da-f-]{27}/g, "random")
    .replaceAll(/\b(?:\d{10}|\d{13}|\d{16})\b(?:\.\d+)?/g, settledTime);
