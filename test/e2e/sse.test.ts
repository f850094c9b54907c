import { expect } from "@jest/globals";
import { EventSource } from "eventsource";
import { becomes, eventually } from "../support/eventually.js";
import { openEvents, requestEvents } from "../support/sse.js";
import { type Stack, sharedStack } from "../support/stack.js";
import { created, deleted } from "../support/timeline-events.js";
import { seconds, tokenOf } from "../support/tokens.js";

const live = sharedStack();
let drops = 0;

/** Publishes a drop of a user's own, which comes to that user's stream; yields its id. */
async function post(stack: Stack, user: string): Promise<string> {
  const [id] = await postMany(stack, user, 1);
  return id as string;
}

/** Drops that are published together land in any order; each once. */
const inAnyOrder = (ids: readonly string[]): string[] => [...ids].sort();

async function postMany({ world, publish }: Stack, user: string, count: number): Promise<string[]> {
  const fresh = Array.from({ length: count }, () => {
    drops += 1;
    return {
      drop_id: `sse-${drops}`,
      user_id: user,
      visibility: "followers" as const,
      created_at: Date.now() - 100_000 + drops,
    };
  });
  world.post(...fresh);
  await publish(...fresh.map(created));
  return fresh.map(({ drop_id }) => drop_id);
}

live("a new drop comes, and its deletion after it", async (stack) => {
  stack.world.follow("bob", "alice");
  const stream = await openEvents(stack.service.httpUrl, "bob");
  const id = await post(stack, "alice");
  const arrival = await stream.waitFor("new_drop");
  expect(arrival.data).toEqual({ drop_id: id, created_at: stack.world.find(id)?.created_at });
  expect(arrival.id).toMatch(/./);
  stack.world.remove(id);
  await stack.publish(deleted(id, "alice"));
  const gone = await stream.waitFor("drop_deleted");
  expect(gone.data).toEqual({ drop_id: id });
  expect(gone.id).toMatch(/./);
  expect(gone.id).not.toBe(arrival.id);
  stream.close();
});

live("a browser's EventSource hears of drops and resumes by itself", async (stack) => {
  const token = await tokenOf("ella");
  const heard: string[] = [];
  const lastIds: Array<string | null> = [];
  const source = new EventSource(`${stack.service.httpUrl}/events/timeline/home`, {
    fetch: (url, init) => {
      lastIds.push(new Headers(init.headers).get("last-event-id"));
      return fetch(url, { ...init, headers: { ...init.headers, authorization: `Bearer ${token}` } });
    },
  });
  try {
    source.addEventListener("new_drop", (event) =>
      heard.push(String((JSON.parse(event.data) as { drop_id: string }).drop_id)),
    );
    await eventually(() => source.readyState === EventSource.OPEN, "the source is open");
    const sent = [...(await postMany(stack, "ella", 3))];
    await eventually(() => heard.length === 3, "three drops");
    expect(inAnyOrder(heard)).toEqual(inAnyOrder(sent));
    expect(lastIds[0] ?? "").toBe("");
  } finally {
    source.close();
  }
});

live("the answer has the headers of a stream and its first bytes before any event", async (stack) => {
  const stream = await openEvents(stack.service.httpUrl, "hedi");
  expect(stream.events).toEqual([]);
  expect(stream.headers["content-type"]).toMatch(/^text\/event-stream/);
  expect(stream.headers["x-accel-buffering"]).toBe("no");
  expect(stream.headers["cache-control"]).toBe("no-cache, no-transform");
  expect(stream.retryMs()).toBeGreaterThan(0);
  expect(stream.raw()).toMatch(/^id: ?.+$/m);
  const others = await Promise.all(Array.from({ length: 8 }, () => openEvents(stack.service.httpUrl, "hedi")));
  expect(new Set(others.map((other) => other.retryMs())).size).toBeGreaterThan(1);
  for (const each of [stream, ...others]) each.close();
});

live("a stream is registered before its first byte and no longer once it is closed", async (stack) => {
  const { redis, service } = stack;
  const stream = await openEvents(service.httpUrl, "rosa");
  const [id, ...more] = await redis.smembers("sse_connections:user:rosa");
  expect([typeof id, more]).toEqual(["string", []]);
  const registered = await redis.hgetall(`sse_connection:${id}`);
  expect(registered).toMatchObject({
    user_id: "rosa",
    pod_name: expect.stringMatching(/./),
    created_at: expect.stringMatching(/./),
  });
  expect(await redis.ttl(`sse_connection:${id}`)).toBeGreaterThan(0);
  stream.close();
  await eventually(async () => (await redis.scard("sse_connections:user:rosa")) === 0, "the registration is gone");
});

// Invariant 7.
live("resumes over a gap of 100 events: nothing missed, nothing twice, in order", async (stack) => {
  const { service } = stack;
  const before = await openEvents(service.httpUrl, "gabi");
  const first = await post(stack, "gabi");
  await before.waitFor("new_drop");
  const cursor = before.lastId();
  before.close();
  await before.ended;
  const missed = await postMany(stack, "gabi", 100);
  await eventually(async () => (await notesOf(stack, "gabi")) >= 101, "all 100 are waiting");
  const after = await openEvents(service.httpUrl, "gabi", cursor);
  await eventually(() => after.drops().length >= 100, "what was missed");
  const later = await postMany(stack, "gabi", 5);
  await eventually(() => after.drops().length >= 105, "what comes next");
  expect(inAnyOrder(after.drops())).toEqual(inAnyOrder([...missed, ...later]));
  expect(after.drops()).not.toContain(first);
  expect(after.events.some(({ event }) => event === "reset")).toBe(false);
  after.close();
});

// Invariant 7.
live("resumes in the middle of traffic: nothing missed, nothing twice", async (stack) => {
  const { service } = stack;
  const seen: string[] = [];
  let cursor: string | undefined;
  const sent: string[] = [];
  let stream = await openEvents(service.httpUrl, "milo");
  for (let round = 0; round < 12; round += 1) {
    const open = stream;
    sent.push(...(await postMany(stack, "milo", 8)));
    await eventually(() => open.drops().length >= 1 + (round % 4), "some of this round");
    open.close();
    await open.ended;
    cursor = open.lastId();
    seen.push(...open.drops());
    sent.push(...(await postMany(stack, "milo", 4)));
    stream = await openEvents(service.httpUrl, "milo", cursor);
  }
  await eventually(() => seen.length + stream.drops().length >= sent.length, "everything that was sent");
  seen.push(...stream.drops());
  expect(inAnyOrder(seen)).toEqual(inAnyOrder(sent));
  stream.close();
});

// Invariant 7.
live("a client that never got an event resumes from its first id", async (stack) => {
  const quiet = await openEvents(stack.service.httpUrl, "quinn");
  const cursor = quiet.lastId();
  quiet.close();
  await quiet.ended;
  const missed = await postMany(stack, "quinn", 3);
  await eventually(async () => (await notesOf(stack, "quinn")) >= 3, "three are waiting");
  const after = await openEvents(stack.service.httpUrl, "quinn", cursor);
  await eventually(() => after.drops().length >= 3, "what was missed");
  expect(after.events.map(({ event }) => event)).toEqual(["new_drop", "new_drop", "new_drop"]);
  expect(inAnyOrder(after.drops())).toEqual(inAnyOrder(missed));
  after.close();
});

// Invariant 7.
live("what can no longer be replayed, or makes no sense, is answered by a reset", async (stack) => {
  const { service } = stack;
  const before = await openEvents(service.httpUrl, "rex");
  await post(stack, "rex");
  await before.waitFor("new_drop");
  const cursor = before.lastId();
  before.close();
  await before.ended;
  const missed = await postMany(stack, "rex", 150);
  await stack.streams.settledWith(missed.length + 1);
  for (const id of [cursor, "garbage", "99999999999", "-1", "1.5", "0x10", "😀", "a".repeat(5_000)]) {
    const stream = await openEvents(service.httpUrl, "rex", encodeURI(id) === id ? id : encodeURIComponent(id));
    const reset = await stream.waitFor("reset");
    expect(reset.data).toEqual({ reason: expect.stringMatching(/./) });
    expect(stream.events[0]?.event).toBe("reset");
    const next = await post(stack, "rex");
    await eventually(() => stream.drops().includes(next), "it goes on live");
    expect(stream.lastId()).not.toBe(id);
    stream.close();
  }
});

live("two streams of one user hear the same", async (stack) => {
  const one = await openEvents(stack.service.httpUrl, "twin");
  const two = await openEvents(stack.service.httpUrl, "twin");
  const sent = await postMany(stack, "twin", 5);
  for (const stream of [one, two]) {
    await eventually(() => stream.drops().length >= 5, "five drops");
    expect(inAnyOrder(stream.drops())).toEqual(inAnyOrder(sent));
    stream.close();
  }
});

live("the cookie access_token serves as well", async (stack) => {
  const cookie = `theme=dark; access_token=${await tokenOf("coco")}; other=1`;
  const stream = await requestEvents(stack.service.httpUrl, { headers: { cookie } });
  expect(stream.status).toBe(200);
  await eventually(() => stream.raw().includes("\n\n"), "the first bytes");
  const id = await post(stack, "coco");
  await stream.waitFor("new_drop");
  expect(stream.drops()).toEqual([id]);
  stream.close();
});

live(
  "a heartbeat with a position comes within 15 seconds",
  async (stack) => {
    const stream = await openEvents(stack.service.httpUrl, "hans");
    const start = stream.raw().length;
    await eventually(() => /^:.*$/m.test(stream.raw().slice(start)), "a comment", 15_500);
    await eventually(() => /^id: ?.+$/m.test(stream.raw().slice(start)), "an id with it");
    stream.close();
  },
  30_000,
);

live("a stream ends when its token does", async (stack) => {
  // The drop has to come before.
  const exp = seconds() + 6;
  const stream = await requestEvents(stack.service.httpUrl, { token: await tokenOf("exa", { exp }) });
  expect(stream.status).toBe(200);
  const id = await post(stack, "exa");
  await eventually(() => stream.isOver(), "the stream is over");
  expect(Date.now() / 1_000).toBeGreaterThanOrEqual(exp - 1);
  expect(stream.drops()).toEqual([id]);
});

// Invariant 7.
live("a stream goes on at another process where it broke off", async (stack) => {
  const other = await stack.start({ roles: "gateway" });
  const before = await openEvents(stack.service.httpUrl, "nora");
  const first = await postMany(stack, "nora", 10);
  await eventually(() => before.drops().length >= 5, "some drops");
  before.close();
  await before.ended;
  const after = await openEvents(other.httpUrl, "nora", before.lastId());
  const second = await postMany(stack, "nora", 10);
  await eventually(() => before.drops().length + after.drops().length >= 20, "the others");
  expect(inAnyOrder([...before.drops(), ...after.drops()])).toEqual(inAnyOrder([...first, ...second]));
  after.close();
});

live(
  "a registration found gone is renewed, with a reset",
  async (stack) => {
    const { redis, service } = stack;
    const stream = await openEvents(service.httpUrl, "lost");
    const ids = await redis.smembers("sse_connections:user:lost");
    await redis.del("sse_connections:user:lost", ...ids.map((id) => `sse_connection:${id}`));
    await stream.waitFor("reset", 40_000);
    await becomes(async () => {
      expect(await redis.scard("sse_connections:user:lost")).toBe(1);
    });
    const id = await post(stack, "lost");
    await eventually(() => stream.drops().includes(id), "it hears of drops again");
    stream.close();
  },
  60_000,
);

/** Number of notifications of a user's subject, or of those about one drop. */
async function notesOf({ streams }: Stack, user: string): Promise<number> {
  const info = await streams.manager.streams.info("NOTIFY", { subjects_filter: `notify.user.${user}` });
  return info.state.subjects?.[`notify.user.${user}`] ?? 0;
}
