import { type ServiceError, status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { listPath } from "../../src/contracts/timeline-pages.js";
import { Visibility } from "../../src/gen/avion/posts.js";
import { call } from "../support/analysis-http.js";
import { openApi } from "../support/api.js";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { runListHistory } from "../support/list-history.js";
import { openReader } from "../support/reader.js";
import { requestEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
const ROLES = "users,posts,bridge,fanout,api";
const FOLLOWED = { TIMELINE_HOME_REPLIES: "followed" };
const PATIENCE_MS = 5_000;
/** A change of an author's state waits until no process uses an older copy of the registry. */
const PULLED_MS = 30_000;
/** Pages are degraded until it is known that Redis has what the log has. */
const LOSS_MS = 60_000;
const { FOLLOWERS, UNLISTED, DIRECT } = Visibility;

const stateOf = async ({ redis }: Stack, author: string): Promise<string> =>
  (await redis.hget("timeline:x:pulled", author)) ?? "pushed";

async function open(stack: Stack, env: Readonly<Record<string, string>> = {}, roles = ROLES) {
  const service = await stack.start({ roles, env: { ...OWN, ...FOLLOWED, ...env } });
  const [api, reads] = [openApi(service.grpcAddress), openReader(service.grpcAddress)];
  stack.defer(() => api.close());
  stack.defer(() => reads.close());
  const post = async (user: string, more: Parameters<typeof api.post>[1] = {}) => (await api.post(user, more)).drop_id;
  /** Reads the whole list of ada in pages of three. */
  const whole = async (list: string): Promise<string[]> => {
    const ids: string[] = [];
    for (let max_id = ""; ; ) {
      const page = await reads.list("ada", list, { limit: 3, max_id });
      if (page.degraded) return ["degraded"];
      ids.push(...page.drop_ids);
      if (!page.has_more) return ids;
      max_id = page.next_max_id;
    }
  };
  const shows = (list: string, ids: readonly string[], patienceMs = PATIENCE_MS): Promise<void> =>
    becomes(async () => expect(await whole(list)).toEqual(ids), patienceMs);
  return { api, reads, post, shows, service };
}

testWithStack(
  "a list shows what is public or unlisted of its members, and more of those whom the owner follows",
  { service: false, data: true },
  async (stack) => {
    const { api, post, shows } = await open(stack);
    const list = await api.createList("ada", "bob", "cat");
    await shows(list, []);
    const one = await post("bob");
    const two = await post("cat", { visibility: UNLISTED });
    const three = await post("bob", { visibility: FOLLOWERS, mentions: ["ada"] });
    await post("eve");
    await post("ada");
    await shows(list, [two, one]);
    await api.follow({ follower_id: "ada", following_id: "bob" });
    const direct = await post("bob", { visibility: DIRECT, recipients: ["ada"] });
    await post("bob", { visibility: DIRECT, recipients: ["cat"] });
    await shows(list, [direct, three, two, one]);
    await api.unfollow({ follower_id: "ada", following_id: "bob" });
    await shows(list, [two, one]);
    // All of them are stored: a rebuild finds the same.
    await stack.redis.del(`timeline:list:${list}`);
    await shows(list, [two, one]);
    await api.follow({ follower_id: "ada", following_id: "bob" });
    await shows(list, [direct, three, two, one]);
    await api.deleteDrop({ drop_id: one, user_id: "bob" });
    await shows(list, [direct, three, two]);
  },
);

testWithStack(
  "drops of a pulled member are merged into a list: those for followers only while the owner follows the member",
  { service: false, data: true, timeoutMs: 120_000 },
  async (stack) => {
    const { api, post, shows } = await open(stack, { TIMELINE_FANOUT_PULL_THRESHOLD: "3" });
    for (const follower of ["f0", "f1", "f2", "f3"]) await api.follow({ follower_id: follower, following_id: "star" });
    const first = await post("star");
    await eventually(async () => (await stateOf(stack, "star")).startsWith("pulled"), "star is pulled", PULLED_MS);
    const list = await api.createList("ada", "star", "bob");
    await shows(list, [first]);
    const open1 = await post("star", { visibility: UNLISTED });
    const closed = await post("star", { visibility: FOLLOWERS });
    const bobs = await post("bob");
    const open2 = await post("star");
    await shows(list, [open2, bobs, open1, first]);
    // Nothing was pushed: the drops are in the timeline of their author alone.
    expect(await stack.redis.zscore(`timeline:list:${list}`, closed)).toBeNull();
    expect(await stack.redis.zscore("timeline:author:star", closed)).not.toBeNull();
    await api.follow({ follower_id: "ada", following_id: "star" });
    await shows(list, [open2, bobs, closed, open1, first]);
    await api.unfollow({ follower_id: "ada", following_id: "star" });
    await shows(list, [open2, bobs, open1, first]);
    await api.deleteDrop({ drop_id: open2, user_id: "star" });
    await shows(list, [bobs, open1, first]);
    await jsonOf(stack, ["author", "push", "star"]);
    await eventually(async () => (await stateOf(stack, "star")).startsWith("pushed"), "star is pushed", PULLED_MS);
    const last = await post("star");
    await shows(list, [last, bobs, open1, first]);
    expect(await stack.redis.zscore(`timeline:list:${list}`, open1)).not.toBeNull();
  },
);

// Invariants 2 and 8.
testWithStack(
  "a list loses and doubles nothing while fan-out is killed again and again, members change and Redis loses all",
  { service: false, data: true, timeoutMs: 180_000 },
  async (stack) => {
    const { api, post, shows, service } = await open(stack, {}, "users,posts,bridge,api");
    const own = { TIMELINE_USER_SERVICE_ADDR: service.grpcAddress, TIMELINE_POST_SERVICE_ADDR: service.grpcAddress };
    const startFanout = () => stack.start({ roles: "fanout", env: { ...FOLLOWED, ...own } });
    const list_id = await api.createList("ada", "bob");
    const change = { user_id: "ada", list_id };
    let fanout = await startFanout();
    const drops: { readonly id: string; readonly author: string }[] = [];
    const members = new Set(["bob"]);
    const expected = () => drops.flatMap(({ id, author }) => (members.has(author) ? id : [])).reverse();
    for (let round = 0; round < 4; round++) {
      for (let number = 0; number < 12; number++) {
        const author = number % 2 === 0 ? "bob" : "cat";
        drops.push({ id: await post(author), author });
        if (number === 5) await fanout.crash();
        if (number === 8) {
          if (members.delete("cat")) await api.lists.removeListMembers({ ...change, member_ids: ["cat"] });
          else {
            members.add("cat");
            await api.lists.addListMembers({ ...change, member_ids: ["cat"] });
          }
        }
      }
      const [gone] = drops.splice(3, 1);
      await api.deleteDrop({ drop_id: gone?.id ?? "", user_id: gone?.author ?? "" });
      if (round === 2) await stack.redis.flushall();
      fanout = await startFanout();
      await shows(list_id, expected(), LOSS_MS);
    }
  },
);

testWithStack(
  "pages of a list over HTTP are those of gRPC, for its owner alone, with the drops of others where they are asked for",
  { service: false, data: true },
  async (stack) => {
    const { api, reads, post, shows, service } = await open(stack);
    const gateway = await stack.start({
      roles: "gateway",
      env: { TIMELINE_API_ADDR: service.grpcAddress, TIMELINE_POST_SERVICE_ADDR: service.grpcAddress },
    });
    const list = await api.createList("ada", "bob");
    const drops = [await post("bob"), await post("bob"), await post("bob")].reverse();
    await shows(list, drops);
    const read = (query: string, user = "ada") => call(`${gateway.httpUrl}${listPath(list)}${query}`, { user });
    const first = await read("?limit=2");
    expect([first.status, first.body]).toEqual([200, await reads.list("ada", list, { limit: 2 })]);
    const [, next = ""] = /<([^>]+)>; rel="next"/.exec(first.headers.get("link") ?? "") ?? [];
    expect((await call(gateway.httpUrl + next, { user: "ada" })).body.drop_ids).toEqual(drops.slice(2));
    const { items } = (await read("?expand=drops")).body;
    expect(items.map((item: { drop: { drop: { body: string } } }) => item.drop.drop.body)).toEqual([
      "Hello",
      "Hello",
      "Hello",
    ]);
    expect((await read("", "bob")).status).toBe(404);
    expect((await read("?limit=0")).status).toBe(400);
  },
);

testWithStack(
  "while the users service is away a list that was read is degraded, and one that was not is unavailable; a deleted one is gone",
  { service: false, data: true },
  async (stack) => {
    const { api, post, service } = await open(stack);
    const own = { TIMELINE_USER_SERVICE_ADDR: service.grpcAddress, TIMELINE_POST_SERVICE_ADDR: service.grpcAddress };
    const { grpcAddress } = await stack.start({ roles: "api", env: own });
    const reads = openReader(grpcAddress);
    stack.defer(() => reads.close());
    const [list, other] = [await api.createList("ada", "bob"), await api.createList("ada", "bob")];
    const drop = await post("bob");
    const read = (id: string, user = "ada") => reads.list(user, id).catch(({ code }: ServiceError) => code);
    await becomes(async () => expect(await read(list)).toMatchObject({ drop_ids: [drop], degraded: false }));
    const key = `timeline:list:${other}`;
    await becomes(async () => expect(await read(other)).toMatchObject({ drop_ids: [drop] }));
    expect(await stack.redis.exists(key)).toBe(1);
    await api.lists.deleteList({ user_id: "ada", list_id: other });
    expect([await read(other), await read(list, "bob")]).toEqual([status.NOT_FOUND, status.NOT_FOUND]);
    expect(await stack.redis.exists(key)).toBe(0);
    const unread = await api.createList("ada", "bob");
    await service.stop();
    await becomes(async () => expect(await read(list)).toMatchObject({ drop_ids: [drop], degraded: true }));
    expect(await read(unread)).toBe(status.UNAVAILABLE);
  },
);

interface Audited {
  readonly users: number;
  readonly incomplete: number;
  readonly unknown: readonly string[];
  readonly repaired: number;
  readonly differences: readonly { readonly user: string; readonly missing: string[]; readonly unexpected: string[] }[];
}

testWithStack(
  "audits and rebuilds of homes find and mend a list, too, pulled members included",
  { service: false, data: true, timeoutMs: 120_000 },
  async (stack) => {
    const env = {
      TIMELINE_AUDIT_SETTLE_MS: "300",
      TIMELINE_AUDIT_INTERVAL_MS: "0",
      TIMELINE_FANOUT_PULL_THRESHOLD: "3",
    };
    const { api, reads, post, service } = await open(stack, env);
    const upstreams = {
      ...FOLLOWED,
      ...env,
      TIMELINE_USER_SERVICE_ADDR: service.grpcAddress,
      TIMELINE_POST_SERVICE_ADDR: service.grpcAddress,
    };
    const run = <T>(args: readonly string[], code = 0) => jsonOf<T>(stack, args, { code, env: upstreams });
    for (const follower of ["f0", "f1", "f2", "f3"]) await api.follow({ follower_id: follower, following_id: "star" });
    await post("star");
    await eventually(async () => (await stateOf(stack, "star")).startsWith("pulled"), "star is pulled", PULLED_MS);
    const list = await api.createList("ada", "bob", "star");
    const [key, name] = [`timeline:list:${list}`, `list:${list}`];
    const bobs = [await post("bob"), await post("bob"), await post("bob")];
    const closed = await post("bob", { visibility: FOLLOWERS });
    const stars = await post("star");
    const eves = await post("eve");
    const whole = async () => (await reads.list("ada", list)).drop_ids;
    await becomes(async () => expect(await whole()).toEqual([stars, ...bobs.toReversed(), expect.anything()]));
    const right = await stack.redis.zrange(key, "0", "-1", "WITHSCORES");
    expect(right).toContain(closed);
    expect(await run<Audited>(["audit", "--user", name])).toMatchObject({ users: 1, differences: [], incomplete: 0 });
    const sampled = await run<Audited>(["audit", "--timeline", "home", "--users", "100"]);
    expect(sampled).toMatchObject({ differences: [] });
    const spoil = async () => {
      await stack.redis.zrem(key, bobs[1] as string, closed);
      await stack.redis.zadd(key, Date.now() - 5_000, "never");
      await stack.redis.hset(`timeline:x:bylines:{${key}}`, "never", "bob");
    };
    await spoil();
    const differing = await run<Audited>(["audit", "--user", name], 1);
    expect(differing.differences).toMatchObject([{ user: name, unexpected: ["never"] }]);
    expect(new Set(differing.differences[0]?.missing)).toEqual(new Set([bobs[1], closed]));
    const random = await run<Audited>(["audit", "--timeline", "home", "--users", "100"], 1);
    expect(random.differences.map(({ user }) => user)).toEqual([name]);
    expect(await run<Audited>(["audit", "--user", name, "--fix"])).toMatchObject({ repaired: 1 });
    expect(await stack.redis.zrange(key, "0", "-1", "WITHSCORES")).toEqual(right);
    for (const which of [name, "--all"]) {
      await spoil();
      await run(["timeline", "rebuild", which]);
      expect(await stack.redis.zrange(key, "0", "-1", "WITHSCORES")).toEqual(right);
    }
    // A drop of somebody who is no member any more may be stored, and no page shows it.
    await stack.redis.zadd(key, Date.now() - 5_000, eves);
    await stack.redis.hset(`timeline:x:bylines:{${key}}`, eves, "eve");
    expect(await run<Audited>(["audit", "--user", name])).toMatchObject({ users: 1, differences: [] });
    await api.lists.deleteList({ user_id: "ada", list_id: list });
    expect(await run<Audited>(["audit", "--user", name], 1)).toMatchObject({ users: 0, unknown: [name] });
  },
);

// Invariants 3 to 7.
testWithStack(
  "a list and its stream show what a model of it shows, in any history of drops, members, follows and blocks, past the cap, pulled members too",
  { service: false, data: true, timeoutMs: 180_000 },
  async (stack) => {
    const env = { TIMELINE_MAX_ENTRIES: "10", TIMELINE_FANOUT_PULL_THRESHOLD: "3", TIMELINE_LIMIT_SAME_BODY: "off" };
    const { api, shows, service } = await open(stack, env, `${ROLES},gateway`);
    const openStream = async (list: string) =>
      requestEvents(service.httpUrl, { token: await tokenOf("ada"), timeline: `list/${list}` });
    await runListHistory({ api, redis: stack.redis, shows, openStream, rounds: 40, seed: 14 });
  },
);
