import { connect } from "node:http2";
import type { Redis } from "ioredis";
import { chunked } from "../../src/kernel/concurrency.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { bylinesKey, FLOOR_MEMBER, homeKey, LOCAL_KEY, TOMBSTONES_KEY, VEILED_KEY } from "../../src/state/keys.js";
import { createStandings } from "../../src/state/standing/standings.redis.js";
import type { Bench } from "./support/bench.js";
import { storeHidden } from "./support/homes.js";
import { type Cpu, cpuInTurns, MIDDLE_TURNS, measured, TURNS } from "./support/measure.js";
import {
  askedPage,
  drivePages,
  encodedPage,
  LIMIT,
  openFrames,
  READERS,
  timelineOf,
  userOf,
} from "./support/reads-shared.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const AUTHORS = 100;
const CHANGES_A_SECOND = 168;
const WAVE_EVERY_MS = 250;
const TURN_MS = 700;
const USERS = 10_000;
const TARGET = 1.2;

const ABOUT = `First pages of ${LIMIT} from ${READERS} homes in turn and from local, with users suspended, against the same pages with nobody suspended. Each page is
checked. Kinds take turns; figures are means of the middle ${MIDDLE_TURNS} of ${TURNS} turns. CPU is that of \`api\` and Redis.`;

const numbers = (count: number): number[] => Array.from({ length: count }, (_, number) => number);
const authorOf = (age: number): string => `author-${age % AUTHORS}`;

/** Nobody is suspended; strangers are; they are while others are being suspended; an author of the page is. */
const SIDES = ["nobody", "strangers", "wave", "shown"] as const;
type Side = (typeof SIDES)[number];

export async function run({ users = USERS }: Parameters, bench: Bench): Promise<Result> {
  const nats = await bench.nats();
  const sides = new Map<Side, Awaited<ReturnType<typeof open>>>();
  for (const side of SIDES) sides.set(side, await open(bench, nats, { side, users }));
  const rows: Row[] = [];
  for (const kind of ["Home", "Local"] as const) {
    const works = Object.fromEntries(SIDES.map((side) => [side, sides.get(side)?.[kind] as () => Promise<Cpu>]));
    const figures = await cpuInTurns(works as Record<Side, () => Promise<Cpu>>);
    const peer = { name: "nobody suspended", value: sumOf(figures.nobody) };
    const row = (side: Exclude<Side, "nobody">, name: string): Row => ({
      ...{ name: `a page of ${kind.toLowerCase()}, ${name}: CPU`, value: sumOf(figures[side]), unit: "µs" },
      ...{ cpu: figures[side], peer, target: { atMost: TARGET } },
    });
    rows.push(
      row("strangers", `${users} strangers suspended`),
      row("wave", `${CHANGES_A_SECOND} more each second`),
      row("shown", "authors of a tenth of its drops suspended"),
    );
  }
  return { about: ABOUT, rows };
}

const sumOf = ({ api = 0, redis = 0 }: Cpu): number => api + redis;

async function open(
  bench: Bench,
  nats: Awaited<ReturnType<Bench["nats"]>>,
  { side, users }: { readonly side: Side; readonly users: number },
) {
  const servers = { ...(await bench.servers()), ...nats };
  const { redis, redisServer } = servers;
  await fill(redis);
  const standings = createStandings(createScripts(redis));
  const suspend = (names: readonly string[], version = 1) =>
    standings.record(names.map((user_id) => ({ user_id, standing: "suspended", until: 0, version })));
  const isHidden = (age: number): boolean => side === "shown" && age % 10 === 3;
  if (side !== "nobody") await suspend(numbers(users).map((number) => `stranger-${number}`));
  if (side === "shown") await suspend(await veil(redis, numbers(1_000).filter(isHidden)));
  const { pid, grpcAddress } = await bench.service(servers, { roles: "api" });
  const session = connect(`http://${grpcAddress}`);
  bench.defer(() => session.destroy());
  const local = timelineOf(-2);
  const entriesOf = (kind: "Home" | "Local", reader: number) => (kind === "Home" ? timelineOf(reader) : local);
  let wave = 0;
  const others = (of: number): string[] =>
    numbers((CHANGES_A_SECOND * WAVE_EVERY_MS) / 1_000).map((number) => `other-${of}-${number}`);
  const work = (kind: "Home" | "Local") => {
    const call = openFrames(session, `/avion.TimelineService/Get${kind}Timeline`);
    const pages = numbers(READERS).map((reader) => {
      const shown = entriesOf(kind, reader).filter((_, age) => !isHidden(age));
      return askedPage(userOf(reader), encodedPage(shown.slice(0, LIMIT)));
    });
    return async (): Promise<Cpu> => {
      const changing =
        side === "wave" && setInterval(() => void suspend(others(++wave)).catch(() => undefined), WAVE_EVERY_MS);
      const end = performance.now() + TURN_MS;
      const until = () => performance.now() >= end;
      const drive = () => drivePages(call, pages, { inFlight: 64, until });
      const { cpu, result } = await measured({ processes: { api: pid, redis: redisServer.pid }, units: 1 }, drive);
      if (changing) clearInterval(changing);
      return Object.fromEntries(Object.entries(cpu).map(([name, spent]) => [name, spent / result]));
    };
  };
  return { Home: work("Home"), Local: work("Local") };
}

/** Veils the drops of these ages in all homes. Resolves to the authors that local names for them. */
async function veil(redis: Redis, ages: readonly number[]): Promise<string[]> {
  const drops = numbers(READERS).flatMap((reader) => ages.map((age) => timelineOf(reader)[age]?.drop as string));
  for (const chunk of chunked(drops, 1_000))
    await redis.zadd(VEILED_KEY, ...chunk.flatMap((drop) => [Number.MAX_SAFE_INTEGER, drop]));
  return [...new Set(ages.map(authorOf))];
}

async function fill(redis: Redis): Promise<void> {
  await redis.zadd(TOMBSTONES_KEY, 0, FLOOR_MEMBER);
  const add = async (key: string, reader: number): Promise<void> => {
    const entries = timelineOf(reader);
    await redis.zadd(key, 0, FLOOR_MEMBER, ...entries.flatMap(({ score, drop }) => [score, drop]));
  };
  await add(LOCAL_KEY, -2);
  await redis.hset(bylinesKey(LOCAL_KEY), new Map(timelineOf(-2).map(({ drop }, age) => [drop, authorOf(age)])));
  for (const reader of numbers(READERS)) await add(homeKey(userOf(reader)), reader);
  await storeHidden(redis, new Map(numbers(READERS).map((reader) => [userOf(reader), []])));
  check((await redis.zcard(LOCAL_KEY)) > LIMIT, "local is filled");
}
