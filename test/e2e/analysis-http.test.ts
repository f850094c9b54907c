import { status as grpcStatus } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { headers as newHeaders } from "nats";
import { v7 } from "uuid";
import { call, post } from "../support/analysis-http.js";
import { jsonOf } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { openEvents } from "../support/sse.js";
import { sharedStack } from "../support/stack.js";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";

const onStack = sharedStack({
  roles: "gateway,analysis,rewards",
  data: true,
  env: { TIMELINE_RETRY_BASE_MS: "20" },
});

const events = (stream: { events: readonly { event: string; data: unknown }[] }) =>
  stream.events.map(({ event, data }) => ({ event, data }));

// It reads whole streams, and so comes first.
onStack("an analysis is asked for, completed, told of and rewarded; what was missed is replayed", async (stack) => {
  const { httpUrl: url } = stack.service;
  stack.world.addProfile("bob");
  const stream = await openEvents(url, "ada");
  const headers = { traceparent: `00-${TRACE}-00f067aa0ba902b7-01` };
  const asked = await post(url, "ada", { tier: "LIFT", body: { did: "bob", type: "flow" }, headers });
  expect(asked.status).toBe(202);
  const { analysis_id, status_url } = asked.body;
  await stream.waitFor("xp_earned");
  const told = [
    { event: "analysis_completed", data: { analysis_id, did: "bob", type: "flow", status_url } },
    { event: "xp_earned", data: { event_id: analysis_id, amount: 15, total: 15 } },
  ];
  expect(events(stream)).toEqual(told);
  for (const [name, count] of Object.entries({ TIMELINE_EVENTS: 1, GAMIFICATION: 1, NOTIFY: 2 })) {
    const traces = (await stack.streams.all(name)).map((stored) => stored.headers["traceparent"]?.split("-")[1]);
    expect([name, traces]).toEqual([name, Array(count).fill(TRACE)]);
  }
  const { status, body } = await call(url + status_url, { user: "ada" });
  expect(status).toBe(200);
  expect(body).toMatchObject({ analysis_id, did: "bob", type: "flow", status: "completed", cached: false });
  expect(body.results).toMatchObject({ version: expect.any(String), posts: 0 });
  expect((await call(url + status_url, { user: "eve" })).status).toBe(404);
  expect((await call(`${url}/api/v1/timeline/analyses`, { user: "ada" })).body).toEqual({
    analyses: [body],
    next_cursor: null,
  });
  expect((await call(`${url}/api/v1/xp`, { user: "ada" })).body).toEqual({
    user_id: "ada",
    total: 15,
    transactions: [
      {
        event_id: analysis_id,
        amount: 15,
        multiplier: 1.5,
        reason: "timeline_analysis",
        earned_at: expect.any(String),
      },
    ],
    next_cursor: null,
  });
  const [first] = stream.events;
  stream.close();
  const again = await openEvents(url, "ada", first?.id);
  await again.waitFor("xp_earned");
  expect(events(again)).toEqual(told.slice(1));
  again.close();
  expect(await jsonOf(stack, ["analysis", "ls"])).toEqual([]);
  expect(await jsonOf(stack, ["analysis", "show", analysis_id])).toMatchObject({
    status: "completed",
    user_id: "ada",
  });
});

onStack("dead letters of analyses are in every command for dead letters", async (stack) => {
  const { httpUrl: url } = stack.service;
  stack.world.addProfile("bob");
  const jetstream = stack.streams.connection.jetstream();
  await jetstream.publish("events.timeline.requested", "no request");
  type Letter = { seq: number; reason: string; event: string; stream: string };
  const list = () => jsonOf<Letter[]>(stack, ["dlq", "ls"]);
  await becomes(async () => expect(await list()).toHaveLength(1));
  const [invalid] = await list();
  expect(invalid).toMatchObject({ reason: "invalid", event: "analysis_requested", stream: "TIMELINE" });
  const seq = String(invalid?.seq);
  expect(await jsonOf(stack, ["dlq", "show", seq])).toMatchObject({ body: "no request", event: "analysis_requested" });
  expect(await jsonOf(stack, ["analysis", "ls"])).toMatchObject([
    { analysis_id: null, status: "failed", stream: "DLQ", stream_seq: invalid?.seq, reason: "invalid" },
  ]);
  expect(await jsonOf(stack, ["dlq", "redrive", seq], { code: 1 })).toMatchObject({ refused: [{ seq: invalid?.seq }] });
  expect(await jsonOf(stack, ["dlq", "rm", seq])).toMatchObject({ removed: [invalid?.seq] });

  const analysis_id = v7();
  const common = { analysis_id, user_id: "cy", did: "bob", type: "pulse", tier: "DRIFT" };
  const request = JSON.stringify({ ...common, requested_at: new Date().toISOString() });
  const headers = newHeaders();
  const now = new Date().toISOString();
  const why = { Reason: "exhausted", Error: "INTERNAL", Stream: "TIMELINE", Subject: "events.timeline.requested" };
  for (const [name, value] of Object.entries({ ...why, "First-Seen": now, "Failed-At": now, "Redrive-Count": "0" }))
    headers.set(`Dlq-${name}`, value);
  await jetstream.publish("dlq.exhausted.analysis_requested", request, { headers });
  const [letter] = await list();
  expect(await jsonOf(stack, ["analysis", "ls"])).toMatchObject([{ ...common, status: "failed", stream: "DLQ" }]);
  expect(await jsonOf(stack, ["dlq", "redrive", "--event", "analysis_requested"])).toMatchObject({
    redriven: [letter?.seq],
  });
  await becomes(async () =>
    expect((await call(`${url}/api/v1/timeline/analyses/${analysis_id}`, { user: "cy" })).body).toMatchObject({
      status: "completed",
    }),
  );
  expect(await list()).toEqual([]);
  await becomes(async () => expect((await call(`${url}/api/v1/xp`, { user: "cy" })).body.total).toBe(10));
});

onStack("a user of ours whose id looks like a handle is an account; a handle of nobody here is none", async (stack) => {
  const { httpUrl: url } = stack.service;
  stack.world.addProfile("ben");
  stack.world.addProfile("profile.example");
  stack.world.post({
    drop_id: "d1",
    user_id: "drops.example",
    created_at: Date.now() - 1_000,
    visibility: "direct",
  });
  const status = async (did: string) => (await post(url, "ada", { body: { did, type: "flow" } })).status;
  expect([await status("profile.example"), await status("drops.example")]).toEqual([202, 202]);
  for (const did of ["alice.bsky.social", "profile.example ", "https://profile.example", "@alice"])
    expect([did, await status(did)]).toEqual([did, 400]);
  const restore = stack.upstreams.inject({ code: grpcStatus.UNAVAILABLE });
  expect([await status("profile.example"), await status("ben")]).toEqual([503, 202]);
  restore();
  const atOnce = () => Promise.all(Array.from({ length: 64 }, () => status("alice.bsky.social")));
  await eventually(async () => (await atOnce()).includes(429), "a user who tries very many handles has to wait");
});
