import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { expect } from "@jest/globals";
import { openApi } from "../support/api.js";
import { becomes } from "../support/eventually.js";
import { openEvents } from "../support/sse.js";
import { sharedStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

/** Positions that a user sets in loops. */
const SET = 2_000;
const LOOPS = 16;

/** The service on its own users and posts. */
const onStack = sharedStack({
  roles: "users,posts,bridge,fanout,api,gateway",
  data: true,
  env: { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" },
});

function setPosition(httpUrl: string, authorization: string, body: object): Promise<Response> {
  const headers = { authorization, "content-type": "application/json" };
  return fetch(`${httpUrl}/api/v1/positions`, { method: "POST", headers, body: JSON.stringify(body) });
}

onStack(
  "a position is set over HTTP, told on the user's streams, counted from by pages, and erased with the user",
  async (stack) => {
    const api = openApi(stack.service.grpcAddress);
    stack.defer(() => api.close());
    const { httpUrl } = stack.service;
    const [ada, bob] = [stack.id("ada"), stack.id("bob")];
    const authorization = `Bearer ${await tokenOf(ada)}`;
    const post = async (user: string) => (await api.post(user)).drop_id;
    const drops = [await post(ada), await post(ada), await post(bob), await post(ada)];
    const page = async (timeline: string) =>
      (
        await fetch(`${httpUrl}/api/v1/timelines/${timeline}?limit=1&with_newer=true`, { headers: { authorization } })
      ).json();
    const newer = async (timeline: string) => ((await page(timeline)) as { newer: number }).newer;
    const set = async (body: object): Promise<[number, unknown]> => {
      const response = await setPosition(httpUrl, authorization, body);
      return [response.status, await response.json()];
    };
    expect(await newer("home")).toBe(0);
    const stream = await openEvents(httpUrl, ada);
    stack.defer(() => stream.close());
    const home = { timeline: "home", drop_id: drops[0], version: 3 };
    expect(await set(home)).toEqual([200, { position: { ...home, updated_at: expect.any(Number) } }]);
    expect((await stream.waitFor("new_position")).data).toEqual(home);
    const [status, refusal] = await set({ ...home, version: 2, drop_id: drops[1] });
    expect([status, refusal]).toEqual([409, expect.objectContaining({ detail: expect.stringContaining("3 stands") })]);
    expect((await set({ timeline: "house", drop_id: "d", version: 1 }))[0]).toBe(400);
    await set({ timeline: "local", drop_id: drops[0], version: 1 });
    await becomes(async () => expect([await newer("home"), await newer("local")]).toEqual([2, 3]));
    await api.block({ user_id: ada, target_id: bob });
    await becomes(async () => expect(await newer("local")).toBe(2));
    await api.deleteDrop({ drop_id: drops[1] as string, user_id: ada });
    await becomes(async () => expect([await newer("home"), await newer("local")]).toEqual([1, 1]));
    const listed = await (await fetch(`${httpUrl}/api/v1/positions`, { headers: { authorization } })).json();
    expect(listed).toMatchObject({ positions: [home, { timeline: "local", drop_id: drops[0], version: 1 }] });

    await api.erase({ user_id: ada, only_if_known: false });
    const { manager } = stack.streams;
    const keys = async () =>
      (await manager.streams.info("KV_POSITIONS", { subjects_filter: `$KV.POSITIONS.${ada}` })).state.subjects ?? {};
    await becomes(async () => expect(await keys()).toEqual({}));
  },
);

onStack("a position in a list is set by its owner, and others and who names no list find none", async (stack) => {
  const api = openApi(stack.service.grpcAddress);
  stack.defer(() => api.close());
  const [ada, bob] = [stack.id("ada"), stack.id("bob")];
  const list = await api.createList(ada, bob);
  const set = async (user: string, list: string): Promise<number> => {
    const body = { timeline: `list:${list}`, drop_id: "d1", version: 1 };
    return (await setPosition(stack.service.httpUrl, `Bearer ${await tokenOf(user)}`, body)).status;
  };
  expect(await set(ada, list)).toBe(200);
  for (const [user, named] of [
    [bob, list],
    [ada, randomUUID()],
    [ada, "nope!"],
  ] as const)
    expect([named, await set(user, named)]).toEqual([named, 404]);
});

// Invariant 11.
onStack(
  "a user who sets 2,000 positions in a loop is told when to continue, and positions and streams of others are not affected",
  async (stack) => {
    const { httpUrl } = stack.service;
    const [ada, bob] = [stack.id("ada"), stack.id("bob")];
    const [mine, theirs] = [`Bearer ${await tokenOf(ada)}`, `Bearer ${await tokenOf(bob)}`];
    const api = openApi(stack.service.grpcAddress);
    stack.defer(() => api.close());
    const [stream, other] = [await openEvents(httpUrl, ada), await openEvents(httpUrl, bob)];
    stack.defer(() => stream.close());
    stack.defer(() => other.close());
    const refusals: (string | null)[] = [];
    let version = 0;
    let [isOver, loops] = [false, 0];
    const loop = async (): Promise<void> => {
      while (version < SET) {
        const answer = await setPosition(httpUrl, mine, { timeline: "home", drop_id: "d1", version: ++version });
        await answer.body?.cancel();
        if (answer.status === 429) refusals.push(answer.headers.get("retry-after"));
        // Of versions that are set at the same moment a lower one may come too late, or find no turn.
        else expect([200, 409, 503]).toContain(answer.status);
      }
      isOver = ++loops === LOOPS;
    };
    const looping = Promise.all(Array.from({ length: LOOPS }, loop));
    const drops: string[] = [];
    let set = 0;
    while (!isOver) {
      const answer = await setPosition(httpUrl, theirs, { timeline: "home", drop_id: "d1", version: ++set });
      expect(answer.status).toBe(200);
      drops.push((await api.post(bob)).drop_id);
      await pause(200);
    }
    await looping;
    expect(refusals.length).toBeGreaterThan(SET / 2);
    expect(refusals.every((seconds) => Number(seconds) >= 1)).toBe(true);
    await becomes(async () => expect(other.drops().sort()).toEqual([...drops].sort()));
    const told = (from: typeof stream) => from.events.filter(({ event }) => event === "new_position").length;
    await becomes(async () => expect(told(other)).toBe(set));
    expect(told(stream)).toBeLessThanOrEqual(SET - refusals.length);
    expect([stream, other].flatMap(({ events }) => events.filter(({ event }) => event === "reset"))).toEqual([]);
  },
);
