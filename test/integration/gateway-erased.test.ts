import { beforeEach, expect, test } from "@jest/globals";
import { notifySubject } from "../../src/contracts/subjects.js";
import { AppError } from "../../src/kernel/errors.js";
import { namedIn } from "../support/erased.js";
import { eventually } from "../support/eventually.js";
import { ask, client, connection, idle, listen, type Running, send, start, token } from "../support/gateway.js";

beforeEach(async () => (await connection.jetstreamManager()).streams.purge("KV_ERASED"));

const EVE = "eve.the@erased";
const ERASED = JSON.stringify({ event: "~erased" });
const tell = (user: string) => connection.jetstream().publish(notifySubject(user), ERASED);
const nothingNames = (user: string) =>
  eventually(async () => (await namedIn(client as never, user)).length === 0, "no key names the user");

async function refusalOf({ url }: Running, user: string, headers: Record<string, string> = {}) {
  const raw = await ask(url, { authorization: `Bearer ${await token(user)}`, ...headers });
  await eventually(() => raw.ended, "the end of the answer");
  return raw;
}

test("a stream of an erased user is gone, for browsers and others, whether it resumes or not", async () => {
  const origin = "https://app.example";
  const running = await start({ config: { allowedOrigins: [origin] } });
  const before = await listen(running, EVE);
  const lastId = before.lastId;
  await before.goes();
  await idle(running);
  await running.erased.record(EVE, 1);
  for (const resume of [{}, { "last-event-id": lastId }] as Record<string, string>[])
    for (const accept of ["text/event-stream", "*/*"]) {
      const { response, text } = await refusalOf(running, EVE, { ...resume, accept, origin });
      expect(response.statusCode).toBe(410);
      expect(response.headers).toMatchObject({
        "content-type": "application/problem+json; charset=utf-8",
        "cache-control": "no-store",
        "access-control-allow-origin": origin,
      });
      expect(response.headers["retry-after"]).toBeUndefined();
      expect(JSON.parse(text)).toEqual({
        type: "about:blank",
        title: "Gone",
        status: 410,
        detail: "the user is erased",
      });
    }
  await idle(running);
  await nothingNames(EVE);
});

test("streams that open together with one of an erased user open", async () => {
  const running = await start();
  await running.erased.record(EVE, 1);
  const all = await Promise.all([
    listen(running, "ann"),
    refusalOf(running, EVE),
    listen(running, "bob"),
    refusalOf(running, EVE),
  ]);
  expect(all.map(({ response }) => response.statusCode)).toEqual([200, 410, 200, 410]);
  await send("ann", "d1");
  await all[0].sees(["d1"]);
});

test("open streams end with the message that their user is erased, which no client gets", async () => {
  const running = await start({ limits: { renewMs: 60_000 } });
  const [first, second, other] = await Promise.all(["eve", "eve", "ann"].map((user) => listen(running, user)));
  await send("eve", "d1");
  for (const stream of [first, second]) await stream?.sees(["d1"]);
  await running.erased.record("eve", 1);
  await tell("eve");
  for (const stream of [first, second]) {
    await eventually(() => stream?.ended === true, "the end of the stream");
    expect(stream?.text).not.toContain("erased");
    expect(stream?.drops()).toEqual(["d1"]);
  }
  expect(other?.ended).toBe(false);
  await eventually(() => running.gateway.counts().registrations === 1, "the registrations are gone");
  await nothingNames("eve");
});

test.each([
  ["before", true],
  ["after", false],
])("where the message was missed, a renewal %s the registrations are removed ends the streams", async (_, isThere) => {
  const running = await start({ limits: { renewMs: 200 } });
  const [stream, other] = await Promise.all([listen(running, EVE), listen(running, "ann")]);
  await running.erased.record(EVE, 1);
  const removed = (await client.keys("sse*")).filter(
    (key) => !key.startsWith("sse_recent:") || key.includes("listing"),
  );
  if (!isThere) await client.del(...removed);
  await eventually(() => stream.ended, "the end of the stream");
  await nothingNames(EVE);
  if (!isThere) await eventually(() => other.resets().length === 1, "the other registration is restored");
  expect(other.ended).toBe(false);
  expect(running.gateway.counts()).toEqual({ streams: 1, users: 1, registrations: 1 });
});

test("a resume over the message that the user is erased sends nothing of it", async () => {
  const running = await start({ limits: { renewMs: 60_000 } });
  const before = await listen(running, "cat");
  await before.goes();
  // Somebody has forged it: the user is not erased.
  await tell("cat");
  await send("cat", "d1");
  const again = await listen(running, "cat", before.lastId);
  await again.sees(["d1"]);
  expect(again.text).not.toContain("erased");
});

test("while nobody knows who is erased, streams are refused for now", async () => {
  const running = await start();
  const among = async () => Promise.reject(new AppError("unavailable", "Redis is away"));
  Object.assign(running.erased, { among });
  const { response, text } = await refusalOf(running, "ann", { accept: "text/event-stream" });
  expect([response.statusCode, text]).toEqual([200, expect.stringMatching(/^retry: \d+\n: Redis is away\n\n$/)]);
  await idle(running);
});
