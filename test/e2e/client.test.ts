import { expect } from "@jest/globals";
import {
  type StreamEvents,
  type StreamName,
  TimelineClient,
  type TimelineError,
} from "../../clients/typescript/src/index.js";
import { type Api, openApi } from "../support/api.js";
import { PEOPLE } from "../support/client-streams.js";
import { becomes, eventually } from "../support/eventually.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

const onStack = sharedStack(PEOPLE);

const apiOf = (stack: SharedStack): Api => {
  const api = openApi(stack.service.grpcAddress);
  stack.defer(() => api.close());
  return api;
};

const clientOf = (stack: SharedStack, user: string): TimelineClient =>
  new TimelineClient({ url: stack.service.httpUrl, token: () => tokenOf(user) });

/** Everything that a stream tells, in order, each with its name. */
type Told = Array<readonly [event: keyof StreamEvents, data: unknown]>;

/** Opens a stream of a client, and resolves once it is open. */
async function listen(stack: SharedStack, client: TimelineClient, name: StreamName) {
  const stream = client.stream<StreamName>(name);
  stack.defer(stream.close);
  const [told, errors]: [Told, TimelineError[]] = [[], []];
  let isOpen = false;
  stream.on("open", () => {
    isOpen = true;
  });
  stream.on("closed", ({ error }) => error && errors.push(error));
  void (async () => {
    for await (const { event, data } of stream) told.push([event, data]);
  })().catch(() => undefined);
  await eventually(() => isOpen, `the stream ${name} is open`);
  return { stream, told, errors };
}

const tells = (told: Told, count: number): Promise<void> =>
  eventually(() => told.length >= count || JSON.stringify(told), `${count} events`);

onStack(
  "a client reads pages in both directions, and each stream of drops tells of an edit and a deletion",
  async (stack) => {
    const api = apiOf(stack);
    const [user, author] = [stack.id("ada"), stack.id("bob")];
    const client = clientOf(stack, user);
    await api.follow({ follower_id: user, following_id: author });
    const names = ["home", "local", "global"] as const;
    const streams = await Promise.all(names.map((name) => listen(stack, client, name)));
    const drops: string[] = [];
    for (let number = 0; number < 5; number++) drops.push((await api.post(author)).drop_id);
    for (const { told } of streams) await tells(told, 5);
    for (const name of names)
      await becomes(async () => {
        const first = await client.page(name, { limit: 3 });
        const older = await client.page(name, { limit: 2, max_id: first.next_max_id });
        expect([...first.drop_ids, ...older.drop_ids]).toEqual(drops.toReversed());
        expect(first.has_more).toBe(true);
        const newer = await client.page(name, { limit: 3, min_id: older.prev_min_id });
        expect(newer.drop_ids).toEqual(first.drop_ids);
      });
    const [drop_id = ""] = drops;
    await api.edit({ drop_id, user_id: author, body: "Hello again" } as never);
    for (const { told } of streams) await tells(told, 6);
    await api.deleteDrop({ drop_id, user_id: author });
    for (const { told } of streams) await tells(told, 7);
    for (const { told } of streams)
      expect(told.slice(5)).toEqual([
        ["drop_edited", { drop_id, revision: 2 }],
        ["drop_deleted", { drop_id }],
      ]);
  },
);

onStack("a page whose query is wrong is refused at once, and names the field", async (stack) => {
  await expect(clientOf(stack, "ada").page("home", { limit: 101 })).rejects.toMatchObject({
    status: 400,
    isFinal: true,
    problem: { errors: [{ field: "limit", detail: expect.any(String) }] },
  });
});

onStack(
  "a client hears of notifications, lists and counts them, and marks them as read on all streams",
  async (stack) => {
    const api = apiOf(stack);
    const [user, fan] = [stack.id("ada"), stack.id("bob")];
    const client = clientOf(stack, user);
    const [{ told }, home] = [await listen(stack, client, "notifications"), await listen(stack, client, "home")];
    const { drop_id } = await api.post(user);
    await api.follow({ follower_id: fan, following_id: user });
    await api.like({ user_id: fan, drop_id });
    // The stream of the home tells of the user's own drop, too.
    await tells(home.told, 3);
    await tells(told, 2);
    expect(home.told.map(([event]) => event).toSorted()).toEqual(["new_drop", "notification", "notification"]);
    const { notifications, has_more } = await client.notifications();
    expect([notifications.toSorted(byKind), has_more]).toEqual([dataOf(told).toSorted(byKind), false]);
    expect(notifications.toSorted(byKind)).toMatchObject([
      { kind: "FOLLOW", actor_id: fan },
      { kind: "LIKE", actor_id: fan, drop_id },
    ]);
    const likes = await client.notifications({ kinds: ["LIKE", "REPLY"], limit: 5 });
    expect(likes.notifications.map(({ kind }) => kind)).toEqual(["LIKE"]);
    expect((await client.notifications({ kinds: [], max_id: "" })).notifications).toHaveLength(2);
    const { count, newest_id } = await client.unread();
    expect([count, newest_id]).toEqual([2, notifications[0]?.id]);
    await client.markRead(newest_id);
    await tells(told, 3);
    await tells(home.told, 4);
    expect(told.at(-1)).toEqual(["notifications_read", { up_to_id: newest_id }]);
    expect((await client.unread()).count).toBe(0);
  },
);

const dataOf = (told: Told) => told.map(([, data]) => data as StreamEvents["notification"]);

const byKind = (one: { readonly kind: string }, other: { readonly kind: string }): number =>
  one.kind.localeCompare(other.kind);

onStack(
  "a client sets positions, hears of them, and counts what is newer; an older one names what stands",
  async (stack) => {
    const api = apiOf(stack);
    const user = stack.id("ada");
    const client = clientOf(stack, user);
    const list = await api.createList(user, user);
    const drops: string[] = [];
    for (let number = 0; number < 3; number++) drops.push((await api.post(user)).drop_id);
    const { told } = await listen(stack, client, "home");
    const newer = async (name: "home" | `list:${string}`) => (await client.page(name, { with_newer: true })).newer;
    await becomes(async () => expect((await client.page(`list:${list}`)).drop_ids).toHaveLength(3));
    expect(await newer("home")).toBe(0);
    const home = { timeline: "home", drop_id: drops[0] as string, version: 7 };
    const inList = { timeline: `list:${list}`, drop_id: drops[1] as string, version: 1 };
    for (const position of [home, inList])
      expect((await client.setPosition(position)).position).toEqual({ ...position, updated_at: expect.any(Number) });
    await eventually(() => told.filter(([event]) => event === "new_position").length === 2, "both are told");
    expect(told.filter(([event]) => event === "new_position")).toEqual([
      ["new_position", home],
      ["new_position", inList],
    ]);
    expect([await newer("home"), await newer(`list:${list}`)]).toEqual([2, 1]);
    expect((await client.page("home")).newer).toBeUndefined();
    expect((await client.positions()).positions).toMatchObject([home, inList]);
    // A call whose answer is lost is sent again.
    expect((await client.setPosition(home)).position).toMatchObject(home);
    await expect(client.setPosition({ ...home, drop_id: drops[1] as string, version: 6 })).rejects.toMatchObject({
      status: 409,
      isFinal: true,
      message: `version: 7 stands, at the drop ${drops[0]}`,
    });
  },
);

onStack("a list is for its user only, and its stream ends for good once the list is deleted", async (stack) => {
  const api = apiOf(stack);
  const [owner, member] = [stack.id("ada"), stack.id("bob")];
  const list_id = await api.createList(owner, member);
  const list = `list:${list_id}` as const;
  const { drop_id } = await api.post(member);
  const client = clientOf(stack, owner);
  await becomes(async () => expect((await client.page(list, { limit: 5 })).drop_ids).toEqual([drop_id]));
  const others = clientOf(stack, member);
  const refused = { status: 404, isFinal: true };
  await expect(others.page(list)).rejects.toMatchObject(refused);
  await expect(client.page("list:../home")).rejects.toMatchObject({ status: 404 });
  await expect(others.stream(list)[Symbol.asyncIterator]().next()).rejects.toMatchObject(refused);
  await expect(client.stream("list:../home")[Symbol.asyncIterator]().next()).rejects.toMatchObject(refused);
  const { errors } = await listen(stack, client, list);
  await api.lists.deleteList({ user_id: owner, list_id });
  await eventually(() => errors.length === 1, "the stream has ended");
  expect(errors).toMatchObject([refused]);
});
