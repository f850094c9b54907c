import type { Redis } from "ioredis";
import type { JsMsg } from "nats";
import { COMPLETED_FANOUT } from "../../src/contracts/subjects.js";
import { createPublisher, type Message } from "../../src/platform/nats/publish.js";
import { limited } from "../support/limits.js";
import type { Service } from "../support/service.js";
import { World } from "../support/world.js";
import type { Bench, Servers } from "./support/bench.js";
import { timeOfAdditions } from "./support/bounds.js";
import { checkHomes, countHeld, dropIds, fillHomes, fillKeys, storeFollows } from "./support/homes.js";
import { between, measured } from "./support/measure.js";
import { numbered, redisBenchmark } from "./support/redis-benchmark.js";
import { check, type Parameters, type Result, type Row } from "./support/result.js";

const ABOUT = `From \`DROPS\` to Redis by one worker that knows the followers already. Homes are full, so each entry trims.

- Together: a batch holds several drops of each author.
- Single: a batch holds at most one drop of each author, and authors have no follower in common.
- Replies: as single, where a third of the drops are replies to somebody whom every other follower follows: the others' homes leave them out. The figure
  counts the homes of all followers.
- Shared: each drop of a batch is of another author, and most followers follow several of them.

The ceiling is \`ZADD\` into as many full keys, without trimming. The bare script is the bound of single: it reads the floor, adds the entry, reads the
size and trims, 1,000 homes a call. The bare loop pulls from \`DROPS\`, writes each batch by one script call, and acks. With completions it also
publishes one for each drop and waits for its PubAck.`;

interface Case {
  readonly name: "together" | "single" | "replies" | "shared";
  readonly followers: number;
  readonly authors: number;
  readonly posts: number;
  /** Authors have their followers among so many users; unset: each has followers of their own. */
  readonly pool?: number;
  readonly atLeast?: number;
}

const CASES: readonly Case[] = [
  { name: "together", followers: 10, authors: 100, posts: 20_000 },
  { name: "single", followers: 100, authors: 200, posts: 4_000, atLeast: 0.8 },
  { name: "single", followers: 1_000, authors: 20, posts: 400, atLeast: 0.95 },
  { name: "single", followers: 5_000, authors: 4, posts: 80, atLeast: 0.95 },
  { name: "replies", followers: 100, authors: 200, posts: 4_000 },
  { name: "replies", followers: 1_000, authors: 20, posts: 400 },
  { name: "shared", followers: 100, authors: 400, posts: 4_000, pool: 2_000, atLeast: 1.2 },
  { name: "shared", followers: 1_000, authors: 200, posts: 400, pool: 4_000, atLeast: 1.2 },
  { name: "together", followers: 100, authors: 20, posts: 4_000, atLeast: 1.2 },
  { name: "together", followers: 1_000, authors: 4, posts: 400, atLeast: 1.2 },
  { name: "together", followers: 5_000, authors: 1, posts: 80, atLeast: 1.2 },
];
/** Of the newest, which no trimming removes. */
const CHECKED = 900;
/** Neighbours have other followers, but for some. */
const APART = 7;
const ENTRIES = 1_000;
const REQUESTS = 200_000;
const PATIENCE_MS = 120_000;
const AT_ONCE = 500;
/** A batch holds so many drops for each message that a consumer handles at a time. */
const DROPS_A_BATCH = 4;

export async function run({ followers, authors, posts, entries = ENTRIES }: Parameters, bench: Bench): Promise<Result> {
  const cases = CASES.filter((one) => followers === undefined || one.followers === followers);
  const chosen =
    cases.length > 0
      ? cases
      : [{ name: "together" as const, followers: followers as number, authors: 10, posts: 1_000 }];
  const rows: Row[] = [];
  for (const one of chosen) {
    const of = { ...one, authors: authors ?? one.authors, posts: posts ?? one.posts };
    rows.push(...(await measureCase(of, entries, bench)));
    // Redis has up to 5 GB in a case: the servers of all together would not fit.
    await bench.close();
  }
  return { about: ABOUT, rows };
}

async function measureCase(of: Case, entries: number, bench: Bench): Promise<Row[]> {
  const world = new World();
  const audiences = Array.from({ length: of.authors }, (_, author) => {
    const followers = Array.from({ length: of.followers }, (__, number) => followerOf(of, author, number));
    for (const follower of followers) world.follow(follower, nameOf(of, author));
    return [nameOf(of, author), ...followers];
  });
  const servers = await bench.servers(world);
  const { redis, redisServer, natsServer } = servers;
  const homes = [...new Set(audiences.flat())];
  await fillHomes(redis, homes, { entries });
  // As many as there are homes: what the processor has not cached is most of what an entry costs.
  const full = homes.map((_, number) => numbered("full:", number));
  if (of.name === "replies") await storeFollows(redis, new Map(audiences.flatMap(copiesOf)));
  const isApart = of.name === "single" || of.name === "replies";
  const env = {
    ...(isApart && limited({ concurrency: of.authors / DROPS_A_BATCH })),
    ...(of.name === "replies" && { TIMELINE_HOME_REPLIES: "followed" }),
  };
  const service = await bench.service(servers, { roles: "fanout", env });
  const log = createLog(servers, service);
  // The first drops read the followers, and make the process compile what it runs.
  await log.fill(of, of.posts);
  const processes = { worker: service.pid, redis: redisServer.pid, nats: natsServer.pid };
  const ceiling = async (): Promise<number> => {
    await fillKeys(redis, full, { entries });
    const command = ["ZADD", "full:__rand_int__", String(Date.now()), "d:__rand_int__"];
    return (await redisBenchmark(redisServer, { requests: REQUESTS, keys: full.length, command })).value;
  };
  const [peer, { result: drops, seconds, cpu }] = await between(ceiling, () =>
    measured({ processes, units: of.posts }, () => log.fill(of, of.posts)),
  );
  for (const [author, users] of audiences.entries()) await checkAudience(redis, { of, author, users, drops });
  const rate = (of.posts * (of.followers + 1)) / seconds;
  const row: Row = {
    name: `audience ${of.followers}, ${of.name}`,
    ...{ value: rate, unit: "/s", cpu, peer: { name: "ZADD -P 64", value: peer } },
    ...(of.atLeast === undefined ? {} : { target: { atLeast: of.atLeast } }),
    note: `${Math.round(of.posts / seconds)} drops/s`,
  };
  await service.stop();
  if (of.name === "single") {
    await fillKeys(redis, full, { entries });
    const { seconds, cpu: spent } = await timeOfAdditions(servers, full, entries);
    const bound = { value: full.length / seconds, cpu: { redis: (spent["redis"] as number) / of.authors } };
    return [row, { ...row, ...bound, name: `${row.name}, bare script`, target: undefined, note: undefined }];
  }
  return of.followers === 10 ? [row, ...(await cpuRows(servers, cpu["worker"] as number, audiences))] : [row];
}

const isReply = ({ name }: Case, number: number): boolean => name === "replies" && number % 3 === 2;

const parentOf = (author: string): string => `answered-by-${author}`;

/** Users whom the author and the followers follow. */
function copiesOf([author = "", ...followers]: readonly string[]): (readonly [string, readonly string[]])[] {
  const both = [author, parentOf(author)];
  const copies = followers.map((user, number) => [user, showsReplies(number) ? both : [author]] as const);
  return [[author, []], ...copies];
}

const showsReplies = (number: number): boolean => number % 2 === 0;

interface Audience {
  readonly of: Case;
  readonly author: number;
  /** The author and the followers. */
  readonly users: readonly string[];
  /** Those of all authors, in turn. */
  readonly drops: readonly string[];
}

/** The homes have the author's newest drops, and replies only where they show them. */
async function checkAudience(redis: Redis, { of, author, users, drops }: Audience): Promise<void> {
  const own = drops.flatMap((id, number) =>
    number % of.authors === author ? [{ id, isReply: isReply(of, number) }] : [],
  );
  const [replies, others] = [true, false].map((wanted) =>
    own.slice(-CHECKED).flatMap(({ id, isReply: is }) => (is === wanted ? [id] : [])),
  ) as [string[], string[]];
  await checkHomes(redis, users, others);
  if (replies.length === 0) return;
  const [self, ...followers] = users as [string, ...string[]];
  await checkHomes(redis, [self, ...followers.filter((_, number) => showsReplies(number))], replies);
  const more = await countHeld(
    redis,
    followers.filter((_, number) => !showsReplies(number)),
    replies,
  );
  check(more === 0, `${more} replies are in homes that must not have them`);
}

const followerOf = ({ followers, pool }: Case, author: number, number: number): string =>
  pool === undefined ? `f-${followers}-${author}-${number}` : `f-${followers}-${(author * APART + number) % pool}`;

const nameOf = ({ followers, pool }: Case, author: number): string => `author-${followers}-${pool ?? 0}-${author}`;

function createLog({ streams }: Servers, service: Service) {
  const { publishAll } = createPublisher(streams.connection);
  let published = 0;
  return {
    /** Resolves to the ids of new drops, of the authors in turn, once they are in all homes and acked. */
    async fill(of: Case, count: number): Promise<readonly string[]> {
      const ids = dropIds(count, 1_000_000 + published);
      for (let at = 0; at < count; at += AT_ONCE) {
        const some = ids.slice(at, at + AT_ONCE);
        await publishAll(
          some.map((id, number) => ({
            ...{ subject: "drops.created", id: `drop_created:${id}` },
            body: Buffer.from(JSON.stringify(drop(of, id, at + number))),
          })),
        );
      }
      published += count;
      await streams
        .settledWith(published, PATIENCE_MS)
        .catch((error: unknown) => check(false, `${String(error)} ${service.logs()}`));
      return ids;
    },
  };
}

function drop(of: Case, id: string, number: number) {
  const user_id = nameOf(of, number % of.authors);
  const reply = { reply_to: "4000000000000000000", reply_to_author: parentOf(user_id) };
  return { ...dropOf(id, user_id), ...(isReply(of, number) && reply) };
}

const dropOf = (drop_id: string, user_id: string) => ({
  ...{ drop_id, user_id, visibility: "followers", created_at: Date.now() },
});

const WRITE = `for n = 1, #ARGV, 3 do
  for key in string.gmatch(ARGV[n], '[^,]+') do
    redis.call('ZADD', 'bare:' .. key, 'LT', ARGV[n + 1], ARGV[n + 2])
  end
end`;

async function cpuRows(servers: Servers, worker: number, audiences: readonly string[][]): Promise<Row[]> {
  const usersOf = new Map(audiences.map((users) => [users[0] as string, users.join(",")]));
  const { publishAll } = createPublisher(servers.streams.connection);
  const bare = await bareLoop(servers, usersOf, "bare", async () => undefined);
  const completing = await bareLoop(servers, usersOf, "completing", async (batch) => {
    const stored = await publishAll(batch.map(completionOf));
    check(!stored.some((result) => result instanceof Error), "a completion of the bare loop was not stored");
  });
  const peer = { name: "bare loop", value: bare };
  return [
    { name: "audience 10, worker CPU a drop", value: worker, unit: "µs", peer, target: { atMost: 2.5 } },
    { name: "audience 10, bare loop with completions, CPU a drop", value: completing, unit: "µs", peer },
  ];
}

function completionOf(message: JsMsg): Message {
  const { drop_id, user_id, created_at } = message.json<ReturnType<typeof dropOf>>();
  const times = { created_at, admitted_at: created_at, landed_at: created_at, lag_ms: 0 };
  const completed = { event: "drop_created", drop_id, user_id, recipients: 11, chunks: 1, ...times };
  return { subject: COMPLETED_FANOUT, body: JSON.stringify(completed), id: `bare:${drop_id}` };
}

/** Reads the log again, and yields its µs of CPU time a drop. `before` the acks. */
async function bareLoop(
  { streams, redis }: Servers,
  audiences: ReadonlyMap<string, string>,
  name: string,
  before: (batch: readonly JsMsg[]) => Promise<void>,
): Promise<number> {
  const count = await streams.count("DROPS");
  await streams.manager.consumers.add("DROPS", {
    ...{ durable_name: name, filter_subject: "drops.>", ack_policy: "explicit" as never, max_ack_pending: 4_096 },
  });
  const consumer = await streams.connection.jetstream().consumers.get("DROPS", name);
  const begun = process.cpuUsage();
  let left = count;
  let batch: JsMsg[] = [];
  for await (const message of await consumer.consume({ max_messages: 256 })) {
    batch.push(message);
    left--;
    if (batch.length < 64 && left > 0) continue;
    await write(redis, batch, audiences);
    await before(batch);
    for (const one of batch) one.ack();
    batch = [];
    if (left === 0) break;
  }
  await streams.connection.flush();
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / count;
}

async function write(redis: Redis, batch: readonly JsMsg[], audiences: ReadonlyMap<string, string>): Promise<void> {
  const args = batch.flatMap((message) => {
    const { drop_id, user_id, created_at } = message.json<ReturnType<typeof dropOf>>();
    return [audiences.get(user_id) ?? "", created_at, drop_id];
  });
  await redis.eval(WRITE, 0, ...args);
}
