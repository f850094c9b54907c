import { expect, test } from "@jest/globals";
import { createActions } from "../../../src/world/actions.js";
import { World } from "../../../src/world/world.js";

function setUp(seen: (world: World, channel: string) => unknown = () => undefined) {
  const world = new World({ now: () => 1_000_000 });
  const events: { channel: string; payload: Record<string, unknown>; seen: unknown }[] = [];
  const actions = createActions({
    world,
    producer: "p",
    publish: async (channel, payload) =>
      void events.push({ channel, payload: JSON.parse(payload), seen: seen(world, channel) }),
  });
  return { world, events, actions };
}

test("an event is published when the change is visible", async () => {
  const { events, actions } = setUp((world) => ({
    drops: world.dropsByUser("ada").length,
    followers: world.followersOf("ada").items,
    following: world.followingOf("bob").items,
  }));
  const drop = await actions.post({ user_id: "ada" });
  await actions.delete(drop.drop_id);
  await actions.follow("bob", "ada");
  await actions.unfollow("bob", "ada");
  expect(events.map(({ channel, seen }) => [channel, seen])).toEqual([
    ["drop_created", { drops: 1, followers: [], following: [] }],
    ["drop_deleted", { drops: 0, followers: [], following: [] }],
    ["user_followed", { drops: 0, followers: ["bob"], following: ["ada"] }],
    ["user_unfollowed", { drops: 0, followers: [], following: [] }],
  ]);
});

test("payloads carry the contract's fields, producer, seq and traceparent", async () => {
  const { events, actions } = setUp();
  await actions.post(
    { user_id: "ada", drop_id: "d1", created_at: 5, visibility: "direct", recipients: ["bob"] },
    { traceparent: "00-t" },
  );
  await actions.follow("bob", "ada");
  await actions.receiveRemote({ drop_id: "https://far/1", created_at: 7 });
  await actions.receiveRemote({ drop_id: "https://far/2", created_at: 7, user_id: "far" });
  await actions.delete("https://far/2");
  await actions.delete("d1");
  expect(events.map((event) => event.payload)).toEqual([
    {
      drop_id: "d1",
      user_id: "ada",
      visibility: "direct",
      created_at: 5,
      recipients: ["bob"],
      producer: "p",
      seq: 1,
      traceparent: "00-t",
    },
    { follower_id: "bob", following_id: "ada", version: 1_000_000, producer: "p", seq: 2 },
    { drop_id: "https://far/1", created_at: 7, producer: "p", seq: 3 },
    { drop_id: "https://far/2", created_at: 7, user_id: "far", producer: "p", seq: 4 },
    { drop_id: "https://far/2", producer: "p", seq: 5 },
    { drop_id: "d1", user_id: "ada", producer: "p", seq: 6 },
  ]);
});

test("what changes nothing publishes nothing", async () => {
  const { events, actions } = setUp();
  await actions.follow("bob", "ada");
  await actions.receiveRemote({ drop_id: "r" });
  expect(events).toHaveLength(2);
  expect(await actions.follow("bob", "ada")).toBeUndefined();
  expect(await actions.unfollow("ada", "bob")).toBeUndefined();
  expect(await actions.delete("none")).toBeUndefined();
  expect(await actions.receiveRemote({ drop_id: "r" })).toBeUndefined();
  await expect(actions.follow("ada", "ada")).rejects.toThrow(/following_id/);
  expect(events).toHaveLength(2);
});

test("a remote drop from the future is taken at its arrival", async () => {
  const { world, actions } = setUp();
  expect(await actions.receiveRemote({ drop_id: "r", created_at: 9_000_000, user_id: "far" })).toMatchObject({
    created_at: 1_000_000,
  });
  expect(world.dropsByUser("far")).toHaveLength(1);
});

test("a failed publish rejects, leaves the change and a gap in seq", async () => {
  const world = new World();
  const seqs: number[] = [];
  let down = true;
  const actions = createActions({
    world,
    publish: async (_channel, payload) => {
      if (down) throw new Error("down");
      seqs.push(JSON.parse(payload).seq);
    },
  });
  await expect(actions.post({ user_id: "ada" })).rejects.toThrow("down");
  expect(world.dropsByUser("ada")).toHaveLength(1);
  down = false;
  await actions.post({ user_id: "ada" });
  expect(seqs).toEqual([2]);
});
