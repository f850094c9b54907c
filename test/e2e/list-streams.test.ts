import { expect } from "@jest/globals";
import { Visibility } from "../../src/gen/avion/posts.js";
import { openApi } from "../support/api.js";
import { becomes, eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { type EventStream, requestEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
const ENV = { ...OWN, TIMELINE_HOME_REPLIES: "followed", TIMELINE_LIMIT_SAME_BODY: "off" };
const { FOLLOWERS, UNLISTED } = Visibility;
const PULLED_MS = 30_000;

const ask = async (httpUrl: string, list: string, user: string, lastEventId?: string): Promise<EventStream> =>
  requestEvents(httpUrl, { token: await tokenOf(user), timeline: `list/${list}`, ...(lastEventId && { lastEventId }) });

async function open(...request: Parameters<typeof ask>): Promise<EventStream> {
  const stream = await ask(...request);
  expect(stream.status).toBe(200);
  await eventually(() => stream.raw().includes("\n\n"), "the first bytes of the stream");
  return stream;
}

const eventsOf = ({ events }: EventStream): string[] =>
  events.map(({ event, data }) => `${event} ${String(data.drop_id)}`);

async function begin(
  stack: Stack,
  env: Readonly<Record<string, string>> = {},
  roles = "users,posts,bridge,fanout,api,gateway",
) {
  const service = await stack.start({ roles, env: { ...ENV, ...env } });
  const [api, reads] = [openApi(service.grpcAddress), openReader(service.grpcAddress)];
  stack.defer(() => api.close());
  stack.defer(() => reads.close());
  const post = async (user: string, more: Parameters<typeof api.post>[1] = {}) => (await api.post(user, more)).drop_id;
  const key = (list: string) => `timeline:list:${list}`;
  /** Fan-out has applied a change of members once the floor is gone. */
  const changed = async (list: string, change: () => Promise<unknown>) => {
    await reads.list("ada", list);
    expect(await stack.redis.zscore(key(list), "~floor")).not.toBeNull();
    await change();
    await becomes(async () => expect(await stack.redis.zscore(key(list), "~floor")).toBeNull());
  };
  const add = (list_id: string, ...member_ids: string[]) =>
    changed(list_id, () => api.lists.addListMembers({ user_id: "ada", list_id, member_ids }));
  const remove = (list_id: string, ...member_ids: string[]) =>
    changed(list_id, () => api.lists.removeListMembers({ user_id: "ada", list_id, member_ids }));
  const own = { TIMELINE_USER_SERVICE_ADDR: service.grpcAddress, TIMELINE_POST_SERVICE_ADDR: service.grpcAddress };
  return { service, api, reads, post, add, remove, own };
}

testWithStack(
  "the stream of a list tells its owner, and nobody else, what the list shows",
  { service: false, data: true },
  async (stack) => {
    const { service, api, reads, post, add, remove } = await begin(stack);
    const list = await api.createList("ada");
    await add(list, "bob", "cat");
    for (const [name, user] of [
      [list, "eve"],
      ["0190a1b2-0000-7000-8000-000000000000", "ada"],
      ["no-list", "ada"],
    ] as const)
      expect((await ask(service.httpUrl, name, user)).status).toBe(404);
    expect((await requestEvents(service.httpUrl, { timeline: `list/${list}` })).status).toBe(401);
    const stream = await open(service.httpUrl, list, "ada");
    stack.defer(() => stream.close());
    const told: string[] = [];
    const tells = async (...events: string[]) => {
      told.push(...events);
      await becomes(async () => expect(eventsOf(stream)).toEqual(told));
    };
    /** An answer about the list may be a second old. */
    const leavesOut = async (make: () => Promise<string>, marker: string) => {
      await becomes(async () => {
        const drop = await make();
        // Drops of two authors may overtake each other: the second comes once the first is told.
        for (const which of ["first", "second"]) {
          const mark = await post(marker);
          await eventually(() => stream.drops().includes(mark), `the ${which} drop that follows`);
        }
        expect(stream.drops()).not.toContain(drop);
      });
      told.splice(0, told.length, ...eventsOf(stream));
    };
    // The list was not read since its members changed: it has no floor, and the stream tells all the same.
    const one = await post("bob");
    await tells(`new_drop ${one}`);
    await reads.list("ada", list);
    const closed = await post("bob", { visibility: FOLLOWERS });
    await post("eve");
    await post("ada");
    const two = await post("cat", { visibility: UNLISTED });
    await tells(`new_drop ${two}`);
    await post("bob", { reply_to: await post("eve") });
    const answer = await post("bob", { reply_to: two });
    await tells(`new_drop ${answer}`);
    await api.follow({ follower_id: "ada", following_id: "bob" });
    const three = await post("bob", { visibility: FOLLOWERS });
    await tells(`new_drop ${three}`);
    await api.unfollow({ follower_id: "ada", following_id: "bob" });
    await leavesOut(() => post("bob", { visibility: FOLLOWERS }), "cat");
    // Nothing is told of what the owner does not see.
    await api.edit({ drop_id: closed, user_id: "bob", body: "More" } as never);
    await api.deleteDrop({ drop_id: closed, user_id: "bob" });
    await api.edit({ drop_id: one, user_id: "bob", body: "More" } as never);
    await tells(`drop_edited ${one}`);
    await api.deleteDrop({ drop_id: one, user_id: "bob" });
    await tells(`drop_deleted ${one}`);
    await add(list, "dan");
    const four = await post("dan");
    await tells(`new_drop ${four}`);
    await remove(list, "bob");
    await api.block({ user_id: "cat", target_id: "ada" });
    await becomes(async () => expect((await reads.list("ada", list)).drop_ids).toEqual([four]));
    await leavesOut(() => post("cat"), "dan");
    const five = await post("dan");
    await tells(`new_drop ${five}`);
    // Drops of a list of somebody else are no business of this stream.
    const other = await api.createList("ada", "eve");
    await reads.list("ada", other);
    await post("eve");
    const six = await post("dan");
    await tells(`new_drop ${six}`);
    expect(stream.events.some(({ event }) => event === "reset")).toBe(false);
  },
);

testWithStack(
  "the stream of a list that is deleted ends, and cannot be opened again",
  { service: false, data: true },
  async (stack) => {
    const { service, api, post } = await begin(stack);
    const list = await api.createList("ada", "bob");
    const stream = await open(service.httpUrl, list, "ada");
    await api.lists.deleteList({ user_id: "ada", list_id: list });
    await post("bob");
    await eventually(() => stream.isOver(), "the end of the stream", 15_000);
    expect(stream.drops()).toEqual([]);
    expect((await ask(service.httpUrl, list, "ada", stream.lastId())).status).toBe(404);
  },
);

testWithStack(
  "drops of a pulled member are told, and those for followers only while the owner follows the member",
  { service: false, data: true, timeoutMs: 120_000 },
  async (stack) => {
    const { service, api, post, add } = await begin(stack, {
      TIMELINE_FANOUT_PULL_THRESHOLD: "3",
      TIMELINE_FANOUT_CHUNK_SIZE: "2",
    });
    for (const follower of ["f0", "f1", "f2", "f3"]) await api.follow({ follower_id: follower, following_id: "star" });
    await post("star");
    const isPulled = async () => ((await stack.redis.hget("timeline:x:pulled", "star")) ?? "").startsWith("pulled");
    await eventually(isPulled, "star is pulled", PULLED_MS);
    const [list, other] = [await api.createList("ada"), await api.createList("ada", "eve")];
    await add(list, "star");
    const [first, quiet] = [await open(service.httpUrl, list, "ada"), await open(service.httpUrl, other, "ada")];
    const open1 = await post("star");
    const hidden = await post("star", { visibility: FOLLOWERS });
    const open2 = await post("star");
    await becomes(async () => expect(first.drops()).toEqual([open1, open2]));
    // The stream that resumes reads again what was told before, and does not take the hidden drop for one of these.
    first.close();
    const stream = await open(service.httpUrl, list, "ada", first.lastId());
    await api.deleteDrop({ drop_id: hidden, user_id: "star" });
    await api.deleteDrop({ drop_id: open1, user_id: "star" });
    await becomes(async () => expect(eventsOf(stream)).toEqual([`drop_deleted ${open1}`]));
    await api.follow({ follower_id: "ada", following_id: "star" });
    const closed = await post("star", { visibility: FOLLOWERS });
    await becomes(async () => expect(stream.drops()).toEqual([closed]));
    await api.edit({ drop_id: open2, user_id: "star", body: "More" } as never);
    await stream.waitFor("drop_edited");
    const eves = await post("eve");
    await becomes(async () => expect(quiet.drops()).toEqual([eves]));
    expect(quiet.events).toHaveLength(1);
    for (const each of [stream, quiet]) each.close();
  },
);

// Invariant 7.
testWithStack(
  "a stream of a list misses and doubles nothing while its gateway and fan-out are killed again and again",
  { service: false, data: true, timeoutMs: 120_000 },
  async (stack) => {
    const { api, post, own } = await begin(stack, {}, "users,posts,bridge,api");
    const startOne = (roles: string) => stack.start({ roles, env: { ...ENV, ...own } });
    const list = await api.createList("ada", "bob", "cat");
    let [fanout, gateway] = [await startOne("fanout"), await startOne("gateway")];
    const got: string[] = [];
    const posted: string[] = [];
    let lastId: string | undefined;
    for (let round = 0; round < 4; round++) {
      const stream = await open(gateway.httpUrl, list, "ada", lastId);
      for (let number = 0; number < 12; number++) {
        posted.push(await post(number % 2 === 0 ? "bob" : "cat"));
        await post("eve");
        if (number === 4) await (round % 2 === 0 ? fanout : gateway).crash();
      }
      if (round % 2 === 0) {
        fanout = await startOne("fanout");
        await becomes(async () => expect([...got, ...stream.drops()].toSorted()).toEqual(posted.toSorted()), 30_000);
        stream.close();
      } else {
        await stream.ended;
        gateway = await startOne("gateway");
      }
      expect(stream.events.filter(({ event }) => event === "reset")).toEqual([]);
      got.push(...stream.drops());
      lastId = stream.lastId();
    }
    const last = await open(gateway.httpUrl, list, "ada", lastId);
    await becomes(async () => expect([...got, ...last.drops()].toSorted()).toEqual(posted.toSorted()), 30_000);
    last.close();
  },
);
