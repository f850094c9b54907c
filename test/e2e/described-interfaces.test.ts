import { expect } from "@jest/globals";
import { EVENT_STREAMS, streamPath } from "../../src/contracts/stream-events.js";
import { Standing } from "../../src/gen/avion/users.js";
import { call } from "../support/analysis-http.js";
import { openApi } from "../support/api.js";
import { checkerOf, type EventDocument } from "../support/asyncapi.js";
import { becomes, eventually } from "../support/eventually.js";
import { DOCUMENT } from "../support/openapi.js";
import { type EventStream, requestEvents, type StreamRequest } from "../support/sse.js";
import { type SharedStack, sharedStack } from "../support/stack.js";
import { tokenOf } from "../support/tokens.js";

/** All of the service, on its own users and posts. */
const onStack = sharedStack({
  roles: "users,posts,bridge,fanout,api,gateway,analysis,rewards,notifications",
  data: true,
  env: { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" },
});

type Timeline = NonNullable<StreamRequest["timeline"]>;

/** Does everything of which there is an event. Returns the streams of ada that were told. */
async function doEverything(stack: SharedStack): Promise<readonly [name: string, stream: EventStream][]> {
  const { httpUrl, grpcAddress } = stack.service;
  const api = openApi(grpcAddress);
  stack.defer(() => api.close());
  const ask = (path: string, body: object) => call(httpUrl + path, { user: "ada", tier: "LIFT", method: "POST", body });
  const token = await tokenOf("ada");
  const list = await api.createList("ada", "bob");
  const open = async (timeline: Timeline, more = {}): Promise<EventStream> => {
    const stream = await requestEvents(httpUrl, { token, timeline, ...more });
    stack.defer(() => stream.close());
    return stream;
  };
  const names = ["home", "local", "global", `list/${list}`] as const;
  const streams = await Promise.all(names.map((timeline) => open(timeline)));
  const lost = await Promise.all(names.map((timeline) => open(timeline, { lastEventId: "nonsense" })));
  const [home] = streams as [EventStream];
  const allTell = (event: string) => Promise.all(streams.map((stream) => stream.waitFor(event)));
  await Promise.all(lost.map((stream) => stream.waitFor("reset")));

  await api.follow({ follower_id: "ada", following_id: "bob" });
  const [{ drop_id }, mine] = [await api.post("bob"), await api.post("ada")];
  await allTell("new_drop");
  await api.edit({ drop_id, user_id: "bob", body: "Hello again" } as never);
  await allTell("drop_edited");
  await api.like({ drop_id: mine.drop_id, user_id: "bob" });
  const { data } = await home.waitFor("notification");
  await ask("/api/v1/notifications/read", { up_to_id: data["id"] });
  await ask("/api/v1/positions", { timeline: "home", drop_id, version: 1 });
  for (const did of ["bob", "nobody-has-this-id"]) await ask("/api/v1/timeline/analyze", { did, type: "flow" });
  for (const event of ["analysis_completed", "analysis_failed", "xp_earned", "notifications_read", "new_position"])
    await home.waitFor(event);
  await api.deleteDrop({ drop_id, user_id: "bob" });
  await allTell("drop_deleted");

  await api.setProfile({ user_id: "cat", approves_followers: true });
  await api.follow({ follower_id: "bob", following_id: "cat" });
  await api.unfollow({ follower_id: "ada", following_id: "bob" });
  const pair = { user_id: "bob", target_id: "eve" };
  await api.block(pair);
  await api.unblock(pair);
  await api.mute({ ...pair, expires_at: 0, reposts_only: false });
  await api.unmute(pair);
  const spam = { standing: Standing.LIMITED, until: 0, reason: "spam", by: "ada" };
  for (const subject of [{ host: "spam.example" }, { user_id: "eve" }]) await api.setStanding({ ...subject, ...spam });
  await api.putRemote({ uri: "https://far.example/notes/1", actor_uri: "https://far.example/users/fay" });
  await api.erase({ user_id: "dan", only_if_known: false });
  return [...streams, ...lost].map((stream, index) => [names[index % names.length] as string, stream]);
}

/** Messages of the log and of the other streams that the document describes. */
const storedOf = async ({ streams }: SharedStack) =>
  (
    await Promise.all(
      ["DROPS", "ACTIVITY", "COMPLETIONS", "TIMELINE_EVENTS", "GAMIFICATION"].map((name) => streams.all(name)),
    )
  ).flat();

onStack("each event that the AsyncAPI document has is sent as it says, and no other one", async (stack) => {
  const document = (await call(`${stack.service.httpUrl}/asyncapi.json`)).body as EventDocument;
  const check = checkerOf(document);
  const told = await doEverything(stack);
  await stack.redis.publish("drop_created", "no JSON");
  await eventually(async () => (await stack.streams.count("DLQ")) === 1, "there is a dead letter");

  const on = (server: string) =>
    Object.values(document.channels).filter(({ servers }) => servers[0]?.$ref === `#/servers/${server}`);
  const wanted = Object.entries(document.channels).flatMap(([id, channel]) =>
    on("redis").includes(channel) ? [] : Object.keys(channel.messages).map((name) => `${id} ${name}`),
  );
  const sent = async (): Promise<Set<string>> =>
    new Set([
      ...told.flatMap(([name, { events }]) =>
        events.map(({ event, data }) => check("gateway", streamPath(name), { name: event, data })),
      ),
      ...(await storedOf(stack)).map(({ subject, body }) => check("nats", subject, { data: JSON.parse(String(body)) })),
      ...(await stack.streams.all("DLQ")).map(({ subject, body }) => check("nats", subject, { data: body })),
    ]);
  await becomes(async () => expect([...(await sent())].sort()).toEqual([...wanted].sort()), 30_000);

  const [dead] = await stack.streams.all("DLQ");
  const described = document.channels["dlq"]?.messages["dead_letter"]?.headers?.properties ?? {};
  const unknown = Object.keys(dead?.headers ?? {}).filter((name) => /^dlq-/i.test(name) && !(name in described));
  expect([unknown, dead?.headers["Dlq-Reason"]]).toEqual([[], "invalid"]);

  // The bridge takes from Redis what JetStream has.
  const stored = await storedOf(stack);
  expect(on("redis").length).toBeGreaterThan(10);
  for (const { address, messages } of on("redis")) {
    const [name = ""] = Object.keys(messages);
    const subject = on("nats").find((channel) => name in channel.messages)?.address;
    const body = stored.find((message) => message.subject === subject)?.body ?? "";
    expect([address, await stack.redis.publish(address, body)]).toEqual([address, 1]);
  }
  await stack.redis.publish("drop_created", "no JSON either");
  const bodies = async () => (await stack.streams.all("DLQ")).map(({ body }) => String(body));
  await becomes(async () => expect(await bodies()).toEqual(["no JSON", "no JSON either"]));
});

onStack("each route that the OpenAPI document has answers as it says", async (stack) => {
  const { httpUrl, grpcAddress } = stack.service;
  const api = openApi(grpcAddress);
  stack.defer(() => api.close());
  const user = stack.id("fay");
  const { drop_id } = await api.post(user);
  const list = await api.createList(user, stack.id("gus"));
  const ask = (path: string, body?: object) =>
    call(httpUrl + path, { user, tier: "LIFT", ...(body && { method: "POST", body }) });
  const { body: analysis } = await ask("/api/v1/timeline/analyze", { did: user, type: "flow" });
  const bodies: Readonly<Record<string, object>> = {
    "/api/v1/timeline/analyze": { did: user, type: "full" },
    "/api/v1/positions": { timeline: "home", drop_id, version: 1 },
    "/api/v1/notifications/read": { up_to_id: String(Date.now() * 1_000) },
  };
  for (const [path, operations] of Object.entries(DOCUMENT.paths)) {
    // Streams, and a text, are no JSON.
    if (path.startsWith("/events/") || path === "/metrics") continue;
    const asked = path.replace("{id}", path.includes("/list/") ? list : analysis.analysis_id);
    for (const method of Object.keys(operations)) {
      const { status } = await ask(asked, method === "post" ? bodies[path] : undefined);
      expect([method, path, status < 300]).toEqual([method, path, true]);
    }
  }
  expect(Object.keys(EVENT_STREAMS).every((name) => streamPath(name) in DOCUMENT.paths)).toBe(true);
  expect((await fetch(`${httpUrl}/metrics`)).headers.get("content-type")).toMatch(/^text\/plain/);
});
