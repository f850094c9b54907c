import { expect } from "@jest/globals";
import { Standing } from "../../src/gen/avion/users.js";
import { openApi } from "../support/api.js";
import { becomes, eventually } from "../support/eventually.js";
import { type EventStream, requestEvents } from "../support/sse.js";
import { sharedStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

/** The service on its own users and posts. */
const onStack = sharedStack({
  roles: "users,posts,bridge,fanout,api,gateway",
  data: true,
  env: { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" },
});

async function open(httpUrl: string, user: string, lastEventId?: string): Promise<EventStream> {
  const token = await tokenOf(user);
  const stream = await requestEvents(httpUrl, { token, timeline: "local", ...(lastEventId && { lastEventId }) });
  expect(stream.status).toBe(200);
  await eventually(() => stream.raw().includes("\n\n"), "the first bytes of the stream");
  return stream;
}

const eventsOf = ({ events }: EventStream): string[] =>
  events.map(({ event, data }) => `${event} ${String(data.drop_id)}`);

onStack(
  "local tells of a drop, its edit and its deletion, and shows nobody who is hidden or suspended",
  async (stack) => {
    const api = openApi(stack.service.grpcAddress);
    stack.defer(() => api.close());
    const [ada, bob, cat, eve] = [stack.id("ada"), stack.id("bob"), stack.id("cat"), stack.id("eve")];
    const [stream, other] = [await open(stack.service.httpUrl, ada), await open(stack.service.httpUrl, eve)];
    stack.defer(() => stream.close());
    stack.defer(() => other.close());
    const post = async (user: string) => (await api.post(user)).drop_id;
    const seen = async (drops: readonly string[], by: EventStream) =>
      becomes(async () => expect([...by.drops()].sort()).toEqual([...drops].sort()));

    const bobs = await post(bob);
    await seen([bobs], stream);
    await api.edit({ drop_id: bobs, user_id: bob, body: "Hello again" } as never);
    await stream.waitFor("drop_edited");
    await api.deleteDrop({ drop_id: bobs, user_id: bob });
    await stream.waitFor("drop_deleted");
    expect(eventsOf(stream)).toEqual([`new_drop ${bobs}`, `drop_edited ${bobs}`, `drop_deleted ${bobs}`]);

    await api.block({ user_id: bob, target_id: ada });
    const pages = async () => (await stack.reads.local({ user_id: ada, limit: 100 })).drop_ids;
    const blocked = await post(bob);
    await eventually(
      async () => (await stack.reads.local({ user_id: eve, limit: 100 })).drop_ids.includes(blocked),
      "local has it",
    );
    expect(await pages()).not.toContain(blocked);
    const later = await post(bob);
    const cats = await post(cat);
    await seen([bobs, blocked, later, cats], other);
    await becomes(async () => expect(stream.drops()).toContain(cats));
    expect(stream.drops()).not.toContain(later);

    await api.setStanding({ user_id: cat, host: "", standing: Standing.SUSPENDED, until: 0, reason: "", by: "" });
    await api.unblock({ user_id: bob, target_id: ada });
    await becomes(async () => expect(await pages()).toContain(later));
    await becomes(async () => {
      const back = await post(bob);
      await eventually(() => other.drops().includes(back), "the drop has come");
      expect(stream.drops()).toContain(back);
    });
  },
);

// Invariant 7.
onStack("a stream of local goes on at another gateway, with what was missed", async (stack) => {
  const api = openApi(stack.service.grpcAddress);
  stack.defer(() => api.close());
  const address = { TIMELINE_USER_SERVICE_ADDR: stack.service.grpcAddress };
  const own = await stack.start({ roles: "gateway", env: address });
  const ada = stack.id("ada");
  const first = await open(own.httpUrl, ada);
  const before = (await api.post(ada)).drop_id;
  await becomes(async () => expect(first.drops()).toEqual([before]));
  await own.stop();
  await first.ended;
  const missed = (await api.post(ada)).drop_id;
  const second = await open(stack.service.httpUrl, ada, first.lastId());
  stack.defer(() => second.close());
  await becomes(async () => expect(second.drops()).toEqual([missed]));
  const next = await stack.start({ roles: "gateway", env: address });
  const third = await open(next.httpUrl, ada, first.lastId());
  await becomes(async () => expect(third.drops()).toEqual([missed]));
  expect(third.events.some(({ event }) => event === "reset")).toBe(false);
  third.close();
});
