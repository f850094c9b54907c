import { connect } from "node:http2";
import { bylinesKey, FLOOR_MEMBER, LOCAL_KEY, TOMBSTONES_KEY } from "../../src/state/keys.js";
import { World } from "../support/world.js";
import type { Bench } from "./support/bench.js";
import { checkHomes, countHeld, dropIds, fillHomes, storeHidden } from "./support/homes.js";
import { type Cpu, cpuInTurns, MIDDLE_TURNS, measured, TURNS } from "./support/measure.js";
import { askedPage, drivePages, encodedPage, LIMIT, openFrames, timelineOf } from "./support/reads-shared.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const AUTHORS = 100;
const READERS = 200;
const HIDDEN_USERS = 100;
/** One drop of so many is hidden. */
const ONE_IN = 10;
/** Per cent of the followers hide the author. */
const HIDERS = 5;
const TURN_MS = 700;
const ENTRIES = 1_000;
const PATIENCE_MS = 120_000;
const TARGETS = { nobody: 1.1, hundred: 1.3, fanout: 1.1 };

const ABOUT = `First pages of ${LIMIT} from local, of ${READERS} readers in turn. Those who hide somebody hide ${HIDDEN_USERS} users. Then drops to full homes, by one
worker that knows the followers already: the author whom some hide has the same followers as the author whom nobody hides. All kinds
take turns; figures are means of the middle ${MIDDLE_TURNS} of ${TURNS} turns.`;

export async function run(parameters: Parameters, bench: Bench): Promise<Result> {
  return { about: ABOUT, rows: [...(await pages(parameters, bench)), ...(await fanouts(parameters, bench))] };
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, number) => number);

const KINDS = ["", "nobody", "strangers", "authors"] as const;
type Kind = (typeof KINDS)[number];

const authorOf = (number: number): string => `author-${number % AUTHORS}`;

/** There are ten kinds of readers who hide authors; together they hide all. */
function hiddenBy(kind: Kind, reader: number): string[] {
  const strangers = numbers(HIDDEN_USERS).map((number) => `stranger-${number}`);
  if (kind === "strangers") return strangers;
  if (kind !== "authors") return [];
  const authors = numbers(AUTHORS / ONE_IN).map((n) => authorOf(n * ONE_IN + (reader % ONE_IN)));
  return [...authors, ...strangers.slice(authors.length)];
}

async function pages({ connections: inFlight = 64 }: Parameters, bench: Bench): Promise<Row[]> {
  const servers = await bench.servers();
  const { redis, redisServer } = servers;
  const local = timelineOf(-2);
  await redis.zadd(TOMBSTONES_KEY, 0, FLOOR_MEMBER);
  await redis.zadd(LOCAL_KEY, 0, FLOOR_MEMBER, ...local.flatMap(({ score, drop }) => [score, drop]));
  await redis.hset(bylinesKey(LOCAL_KEY), new Map(local.map(({ drop }, age) => [drop, authorOf(age)])));
  const readers = KINDS.flatMap((kind) =>
    numbers(READERS).map((reader) => [`${kind}-${reader}`, hiddenBy(kind, reader)] as const),
  );
  await storeHidden(redis, new Map(readers));
  const { pid, grpcAddress } = await bench.service(servers, { roles: "api" });
  const session = connect(`http://${grpcAddress}`);
  bench.defer(() => session.destroy());
  const call = openFrames(session, "/avion.TimelineService/GetLocalTimeline");
  const work = (kind: Kind) => {
    const asked = numbers(READERS).map((reader) => {
      const hidden = new Set(hiddenBy(kind, reader));
      const shown = local.filter((_, age) => !hidden.has(authorOf(age)));
      return askedPage(kind && `${kind}-${reader}`, encodedPage(shown.slice(0, LIMIT)));
    });
    return async (): Promise<Cpu> => {
      const end = performance.now() + TURN_MS;
      const until = () => performance.now() >= end;
      const drive = () => drivePages(call, asked, { inFlight, until });
      const { cpu, result } = await measured({ processes: { api: pid, redis: redisServer.pid }, units: 1 }, drive);
      return Object.fromEntries(Object.entries(cpu).map(([name, spent]) => [name, spent / result]));
    };
  };
  const figures = await cpuInTurns({
    "": work(""),
    nobody: work("nobody"),
    strangers: work("strangers"),
    authors: work("authors"),
  });
  const peer = { name: "without user_id", value: figures[""]["api"] as number };
  const row = (name: string, kind: Kind, atMost?: number): Row => ({
    ...{ name: `a page of local, ${name}: CPU of the service`, value: figures[kind]["api"] as number, unit: "µs" },
    ...{ cpu: figures[kind], ...(atMost && { peer, target: { atMost } }) },
  });
  return [
    row("without user_id", ""),
    row("of a reader who hides nobody", "nobody", TARGETS.nobody),
    row(`of one who hides ${HIDDEN_USERS}, none of them on it`, "strangers", TARGETS.hundred),
    row(`of one who hides ${HIDDEN_USERS}, a tenth of the drops`, "authors", TARGETS.hundred),
  ];
}

async function fanouts({ followers: count = 5_000 }: Parameters, bench: Bench): Promise<Row[]> {
  const world = new World();
  const followers = numbers(count).map((number) => `follower-${number}`);
  for (const author of ["shown", "hidden"]) for (const user of followers) world.follow(user, author);
  const servers = await bench.servers(world);
  const { redis, redisServer, streams } = servers;
  await fillHomes(redis, [...followers, "shown", "hidden"], { entries: ENTRIES });
  const hiders = followers.filter((_, number) => number % (100 / HIDERS) === 0);
  await storeHidden(redis, new Map(hiders.map((user) => [user, ["hidden"]])));
  const { pid } = await bench.service(servers, { roles: "fanout" });
  const jetstream = streams.connection.jetstream();
  const posted: Record<string, string[]> = { shown: [], hidden: [] };
  let published = 0;
  const work = (user_id: string, atOnce: number, drops: number) => async (): Promise<Cpu> => {
    const post = async (): Promise<void> => {
      for (let at = 0; at < drops; at += atOnce) {
        const ids = dropIds(atOnce, 1_000_000 + published);
        published += atOnce;
        posted[user_id]?.push(...ids);
        const bodies = ids.map((drop_id) => ({ drop_id, user_id, visibility: "followers", created_at: Date.now() }));
        await Promise.all(bodies.map((body) => jetstream.publish("drops.created", JSON.stringify(body))));
        await streams.settledWith(published, PATIENCE_MS);
      }
    };
    const units = drops * (count + 1);
    return (await measured({ processes: { worker: pid, redis: redisServer.pid }, units }, post)).cpu;
  };
  const rows: Row[] = [];
  for (const [atOnce, drops, name] of [
    [1, 16, "a drop"],
    [8, 64, "eight drops at once"],
  ] as const) {
    const { shown, hidden } = await cpuInTurns({
      shown: work("shown", atOnce, drops),
      hidden: work("hidden", atOnce, drops),
    });
    for (const process of ["redis", "worker"]) {
      const peer = { name: "nobody hides the author", value: shown[process] as number };
      const value = hidden[process] as number;
      const of = `${name} to ${count} homes, ${HIDERS} % hide the author: CPU of ${process}, an entry`;
      rows.push({ name: of, value, unit: "µs", peer, target: { atMost: TARGETS.fanout } });
    }
  }
  const others = followers.filter((user) => !hiders.includes(user));
  const newest = (author: string): string[] => (posted[author] as string[]).slice(-400);
  await checkHomes(redis, [...followers, "shown"], newest("shown"));
  await checkHomes(redis, [...others, "hidden"], newest("hidden"));
  check((await countHeld(redis, hiders, posted["hidden"] as string[])) === 0, "no home holds what its user hides");
  return rows;
}
