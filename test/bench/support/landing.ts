import { COMPLETED_FANOUT } from "../../../src/contracts/subjects.js";
import { mapLimited } from "../../../src/kernel/concurrency.js";
import { type Api, openApi } from "../../support/api.js";
import { eventually } from "../../support/eventually.js";
import type { Bench, Servers } from "./bench.js";
import { countHeld, fillHomes } from "./homes.js";
import { Inbox } from "./inbox.js";
import { measured, summarise } from "./measure.js";
import { check, type Parameters, type Result, type Row } from "./result.js";

const FOLLOWERS = 5_000;
const POSTS = 50;
const ENTRIES = 1_000;
const AT_ONCE = 8;
const AUTHOR = "star";
const PATIENCE_MS = 300_000;

const ABOUT = `From the call to the last follower's home timeline: so many posts of one author, ${AT_ONCE} calls at once, with \`posts\` on
PostgreSQL, the outbox, the log and a worker process; home timelines are full. The peer writes the same rows into an
inbox table of the same PostgreSQL: 8 workers, 64 outbox rows claimed at once, statements of 1,000 rows. Statements of
the peer are committed with the claim, and its table is empty at first.`;

type Change = "create" | "delete";

/** The work that `landing` and `delete` measure; a deletion needs its post first. */
export async function landing(change: Change, parameters: Parameters, bench: Bench): Promise<Result> {
  const { followers = FOLLOWERS, posts = POSTS, entries = ENTRIES, workers = 1 } = parameters;
  const servers = await bench.servers();
  const users = Array.from({ length: followers }, (_, n) => `fan-${String(n).padStart(6, "0")}`);
  for (const user of users) servers.world.follow(user, AUTHOR);
  const inbox = await startInbox(bench, users);
  const theirs = await timesOfInbox(inbox, change, { posts, followers });
  await fillHomes(servers.redis, users, { entries, newest: Date.now() - 60_000 });
  const { url } = await bench.postgres();
  const service = await bench.service(servers, { roles: "posts", env: { DATABASE_URL: url } });
  const processes: Record<string, number> = { posts: service.pid, redis: servers.redisServer.pid };
  for (let n = 0; n < workers; n++) {
    const worker = await bench.service(servers, { roles: "fanout" });
    processes[`worker${n === 0 ? "" : n + 1}`] = worker.pid;
  }
  const api = openApi(service.grpcAddress);
  bench.defer(() => api.close());
  const { times: ours, cpu } = await timesOfService({ servers, api, users, processes }, change, posts);
  const rows = (["mean", "p95", "p99"] as const).map((what): Row => {
    const [value, peer] = [summarise(ours)[what], summarise(theirs)[what]];
    return {
      name: `${posts} x ${followers.toLocaleString("en")} followers, ${what}`,
      ...{ value, unit: "ms", peer: { name: "inbox table", value: peer }, ratio: peer / value },
      target: what === "p95" ? { atLeast: 6 } : undefined,
      cpu: what === "mean" ? cpu : undefined,
      note: "ratio: how many times sooner",
    };
  });
  return { about: ABOUT, rows };
}

async function startInbox(bench: Bench, users: readonly string[]): Promise<Inbox> {
  const server = await bench.postgres();
  const inbox = new Inbox(server.url, AUTHOR);
  await inbox.start(users);
  return inbox;
}

async function timesOfInbox(
  inbox: Inbox,
  change: Change,
  { posts, followers }: { readonly posts: number; readonly followers: number },
): Promise<number[]> {
  const ids = Array.from({ length: posts }, (_, n) => `post-${n}`);
  let times: number[] = [];
  for (const step of change === "create" ? (["create"] as const) : (["create", "delete"] as const)) {
    inbox.landed.clear();
    times = await timesOf(ids, inbox.landed, (id) => inbox.change(id, step));
    const wanted = step === "create" ? posts * followers : 0;
    check((await inbox.count()) === wanted, "the inbox holds each post once for each follower");
  }
  await inbox.close();
  return times;
}

interface Scene {
  readonly servers: Servers;
  readonly api: Api;
  readonly users: readonly string[];
  readonly processes: Readonly<Record<string, number>>;
}

async function timesOfService(
  { servers: { redis, streams }, api, users, processes }: Scene,
  change: Change,
  posts: number,
): Promise<{ times: number[]; cpu: Record<string, number> }> {
  const landed = { drop_created: new Map<string, number>(), drop_deleted: new Map<string, number>() };
  streams.connection.subscribe(COMPLETED_FANOUT, {
    callback: (_, message) => {
      const { event, drop_id } = message.json<{ event: keyof typeof landed; drop_id: string }>();
      landed[event].set(drop_id, Date.now());
    },
  });
  const create = async (): Promise<string> => (await api.post(AUTHOR)).drop_id;
  // The follower list is read, and the code compiled.
  const warm = await create();
  await eventually(() => landed.drop_created.has(warm), "the first post has landed", PATIENCE_MS);
  const created = await measured({ processes, units: posts }, () =>
    timesOf(
      Array.from({ length: posts }, () => undefined),
      landed.drop_created,
      create,
    ),
  );
  const drops = [...landed.drop_created.keys()];
  const held = await countHeld(redis, users, drops);
  check(held === users.length * drops.length, `${held} of ${users.length * drops.length} entries are there`);
  if (change === "create") return { times: created.result, cpu: created.cpu };
  const gone = drops.filter((drop) => drop !== warm);
  const deleted = await measured({ processes, units: posts }, () =>
    timesOf(gone, landed.drop_deleted, (drop_id) => api.deleteDrop({ drop_id, user_id: AUTHOR })),
  );
  check((await countHeld(redis, users, gone)) === 0, "no deleted post is left");
  return { times: deleted.result, cpu: deleted.cpu };
}

/** From each call to the moment it has landed; a call that makes an id yields it. */
async function timesOf<Item extends string | undefined>(
  items: readonly Item[],
  landed: ReadonlyMap<string, number>,
  call: (item: Item) => Promise<unknown>,
): Promise<number[]> {
  const begun = new Map<string, number>();
  await mapLimited(items, AT_ONCE, async (item) => {
    const started = Date.now();
    const made = await call(item);
    begun.set(item ?? String(made), started);
  });
  const missing = () => [...begun.keys()].filter((id) => !landed.has(id)).length;
  await eventually(() => missing() === 0 || `${missing()} are missing`, "everything has landed", PATIENCE_MS);
  return [...begun].map(([id, started]) => (landed.get(id) as number) - started);
}
