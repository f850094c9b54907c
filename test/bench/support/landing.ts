import { COMPLETED_FANOUT } from "../../../src/contracts/subjects.js";
import { mapLimited } from "../../../src/kernel/concurrency.js";
import { DELETIONS_CHANNEL } from "../../../src/state/keys.js";
import { type Api, openApi } from "../../support/api.js";
import { eventually } from "../../support/eventually.js";
import { homeKey } from "../../support/timeline-keys.js";
import type { Bench, Servers } from "./bench.js";
import { timeOfRemovals } from "./bounds.js";
import { countHeld, dropIds, fillHomes } from "./homes.js";
import { Inbox } from "./inbox.js";
import { measured, summarise } from "./measure.js";
import { check, type Parameters, type Result, type Row } from "./result.js";

const FOLLOWERS = 5_000;
const POSTS = 50;
const ENTRIES = 1_000;
const AT_ONCE = 8;
const AUTHOR = "star";
/** Has no followers. */
const NOBODY = "nobody";
/** Posts before those that are measured: code is compiled, statements are prepared. */
const WARM = 100;
const PATIENCE_MS = 60_000;
const DATABASE = { settings: ["shared_buffers=1GB", "max_wal_size=4GB"] };

const ABOUT = {
  create: `Posts of one author, ${AT_ONCE} calls at once, from the call until the post is in the last home. They pass \`posts\` on PostgreSQL, the outbox, the log
and one worker. Homes are full (${ENTRIES.toLocaleString("en")} drops), so each is trimmed once. Redis keeps an append-only file with \`everysec\`. PostgreSQL has \`fsync\` on and
1 GB of shared buffers.

The peer is an inbox table in PostgreSQL with a primary key (owner, post) and an index (owner, created_at). 8 workers claim up to 64 outbox
rows at once, upsert 1,000 rows a statement, and commit each. It trims nothing. A ratio is how many times as fast the service is.`,
  delete: `As [landing](#landing), for deletions: until the post is gone from the last home, or until it is hidden, so that no page shows it. The bound of
homes that are sorted sets is a bare ZREM of the same entries, 1,000 a call.`,
} as const satisfies Readonly<Record<string, string>>;

type Change = keyof typeof ABOUT;

/** The work that `landing` and `delete` measure; a deletion needs its post first. */
export async function landing(change: Change, parameters: Parameters, bench: Bench): Promise<Result> {
  const { followers = FOLLOWERS, posts = POSTS, entries = ENTRIES, workers = 1 } = parameters;
  const servers = await bench.servers(undefined, { appendonly: true });
  const users = Array.from({ length: followers }, (_, n) => `fan-${String(n).padStart(6, "0")}`);
  for (const user of users) servers.world.follow(user, AUTHOR);
  const theirs = await timesOfInbox(bench, change, { posts, users, entries });
  await fillHomes(servers.redis, users, { entries, newest: Date.now() - 60_000 });
  const { url } = await bench.postgres(DATABASE);
  const service = await bench.service(servers, { roles: "posts", env: { DATABASE_URL: url } });
  const processes: Record<string, number> = { posts: service.pid, redis: servers.redisServer.pid };
  for (let n = 0; n < workers; n++) {
    const worker = await bench.service(servers, { roles: "fanout" });
    processes[`worker${n === 0 ? "" : n + 1}`] = worker.pid;
  }
  const api = openApi(service.grpcAddress);
  bench.defer(() => api.close());
  const { times, hidden, cpu } = await timesOfService({ servers, api, users, processes }, change, posts);
  const bound = change === "delete" ? await timeOfRemovals(servers, users.map(homeKey), posts) : undefined;
  const name = `${posts} x ${followers.toLocaleString("en")} followers`;
  const rowsOf = (of: string, ours: readonly number[]) =>
    (["mean", "p95", "p99"] as const).map((what): Row => {
      const [value, peer] = [summarise(ours)[what], summarise(theirs)[what]];
      const against = { peer: { name: "inbox table", value: peer }, ratio: peer / value };
      return { name: `${of}, ${what}`, value, unit: "ms", ...against };
    });
  const rows = rowsOf(name, times).map((row, at): Row => {
    return { ...row, target: at === 1 ? { atLeast: 6 } : undefined, cpu: at === 0 ? cpu : undefined };
  });
  if (bound === undefined) return { about: ABOUT[change], rows };
  const [{ p95 }, value] = [summarise(theirs), 1_000 * posts * bound.seconds];
  const bare: Row = {
    ...{ name: `${name}, bare ZREM`, value, unit: "ms", cpu: bound.cpu },
    ...{ peer: { name: "inbox table, p95", value: p95 }, ratio: p95 / value },
  };
  return { about: ABOUT[change], rows: [...rows, bare, ...rowsOf(`${name}, hidden`, hidden)] };
}

async function timesOfInbox(
  bench: Bench,
  change: Change,
  { posts, users, entries }: { readonly posts: number; readonly users: readonly string[]; readonly entries: number },
): Promise<number[]> {
  const server = await bench.postgres(DATABASE);
  const inbox = new Inbox(server.url);
  await inbox.start(AUTHOR, users, dropIds(entries));
  const ids = dropIds(WARM + 1 + posts, entries);
  const [warm, first, measured] = [ids.slice(0, WARM), ids.slice(WARM, WARM + 1), ids.slice(WARM + 1)];
  let times: number[] = [];
  for (const step of change === "create" ? (["create"] as const) : (["create", "delete"] as const)) {
    inbox.landed.clear();
    await landedOf(warm, inbox.landed, (id) => inbox.change(id, step, NOBODY));
    await landedOf(first, inbox.landed, (id) => inbox.change(id, step, AUTHOR));
    times = since(await landedOf(measured, inbox.landed, (id) => inbox.change(id, step, AUTHOR)), inbox.landed);
    const wanted = users.length * (step === "create" ? entries + 1 + posts : entries);
    check((await inbox.count()) === wanted, "the inbox holds each post once for each follower");
  }
  await inbox.close();
  await server.stop();
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
): Promise<{ times: number[]; hidden: number[]; cpu: Record<string, number> }> {
  const landed = { drop_created: new Map<string, number>(), drop_deleted: new Map<string, number>() };
  streams.connection.subscribe(COMPLETED_FANOUT, {
    callback: (_, message) => {
      const { event, drop_id } = message.json<{ event: keyof typeof landed; drop_id: string }>();
      landed[event].set(drop_id, Date.now());
    },
  });
  const create = (author: string, count: number) =>
    landedOf(
      Array.from({ length: count }, () => undefined),
      landed.drop_created,
      async () => (await api.post(author)).drop_id,
    );
  const remove = (drops: readonly string[], user_id: string) =>
    landedOf(drops, landed.drop_deleted, (drop_id) => api.deleteDrop({ drop_id, user_id }));
  await create(NOBODY, WARM);
  const warm = [...landed.drop_created.keys()];
  // The follower list is read.
  await create(AUTHOR, 1);
  const created = await measured({ processes, units: posts }, () => create(AUTHOR, posts));
  const drops = [...landed.drop_created.keys()].slice(WARM);
  const held = await countHeld(redis, users, drops);
  check(held === users.length * drops.length, `${held} of ${users.length * drops.length} entries are there`);
  if (change === "create") return { times: since(created.result, landed.drop_created), hidden: [], cpu: created.cpu };
  const hidden = new Map<string, number>();
  const deletions = redis.duplicate();
  deletions.on("message", (_, drop: string) => hidden.set(drop, Date.now()));
  await deletions.subscribe(DELETIONS_CHANNEL);
  await remove(warm, NOBODY);
  await remove(drops.slice(0, 1), AUTHOR);
  const deleted = await measured({ processes, units: posts }, () => remove(drops.slice(1), AUTHOR));
  check((await countHeld(redis, users, drops)) === 0, "no deleted post is left");
  deletions.disconnect();
  const times = since(deleted.result, landed.drop_deleted);
  return { times, hidden: since(deleted.result, hidden), cpu: deleted.cpu };
}

/** When each call began, once all have landed; a call that makes an id yields it. */
async function landedOf<Item extends string | undefined>(
  items: readonly Item[],
  landed: ReadonlyMap<string, number>,
  call: (item: Item) => Promise<unknown>,
): Promise<ReadonlyMap<string, number>> {
  const begun = new Map<string, number>();
  await mapLimited(items, AT_ONCE, async (item) => {
    const started = Date.now();
    const made = await call(item);
    begun.set(item ?? String(made), started);
  });
  const missing = () => [...begun.keys()].filter((id) => !landed.has(id)).length;
  await eventually(() => missing() === 0 || `${missing()} are missing`, "everything has landed", PATIENCE_MS);
  return begun;
}

const since = (begun: ReadonlyMap<string, number>, ended: ReadonlyMap<string, number>): number[] =>
  [...begun].map(([id, started]) => (ended.get(id) as number) - started);
