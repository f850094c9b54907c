import { expect, test } from "@jest/globals";
import { createAuthenticate, refusingLoggedOut } from "../../src/gateway/auth.js";
import { startStreamService } from "../../src/gateway/index.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { namedIn } from "../support/erased.js";
import { eventually } from "../support/eventually.js";
import { ask, cleanups, client, connection, listen, type Running, send, start, token } from "../support/gateway.js";

const now = (): number => Math.floor(Date.now() / 1_000);
/** Two seconds ahead of a logout that follows. */
const later = (user: string): Promise<string> => token(user, 600, { iat: now() + 2 });
const earlier = (user: string): Promise<string> => token(user, 600, { iat: now() - 2 });

async function answerTo({ url }: Running, bearer: string) {
  const raw = await ask(url, { authorization: `Bearer ${bearer}`, accept: "text/event-stream" });
  if (raw.response.statusCode === 200) await eventually(() => raw.lastId !== "", "the first block");
  else await eventually(() => raw.ended, "the end of the answer");
  return raw;
}

test("a logout ends the streams of the user in every process, but for those of newer tokens, and refuses older tokens", async () => {
  const slow = { limits: { renewMs: 60_000 } };
  const [one, two] = [await start(slow), await start(slow)];
  const old = [
    await listen(one, "ada"),
    await answerTo(one, await earlier("ada")),
    await answerTo(two, await earlier("ada")),
  ];
  const [kept, other] = [await answerTo(two, await later("ada")), await listen(two, "bob")];
  const { refused_before } = await one.logOut("ada");
  for (const stream of old) {
    await eventually(() => stream.ended, "the end of the stream");
    expect(stream.text).not.toContain("logged_out");
  }
  for (const running of [one, two, await start()]) {
    for (const bearer of [
      await token("ada"),
      await earlier("ada"),
      await token("ada", 600, { iat: Date.parse(refused_before) / 1_000 }),
    ]) {
      const { response } = await answerTo(running, bearer);
      expect(response.statusCode).toBe(401);
    }
    expect((await answerTo(running, await later("ada"))).response.statusCode).toBe(200);
  }
  await send("ada", "d1");
  await kept.sees(["d1"]);
  expect([kept.ended, kept.resets(), other.ended]).toEqual([false, [], false]);
});

test("a stream whose gateway has missed the message ends with the next renewal, and so does one that opens", async () => {
  const running = await start();
  const [stream, other] = [await listen(running, "cat"), await listen(running, "bob")];
  await client.zadd("timeline:x:logouts", Date.now(), "cat");
  await eventually(() => stream.ended, "the end of the stream");
  expect(other.ended).toBe(false);
  await eventually(() => running.gateway.counts().streams === 1, "nothing of the stream is held");
});

test("the record of a logout lives longer than any cookie, and an erased user has none", async () => {
  const running = await start();
  await running.logOut("dan");
  const days = (await client.pttl("timeline:x:logouts")) / 86_400_000;
  expect(days).toBeGreaterThan(399);
  await running.erased.record("eve", 1);
  await expect(running.logOut("eve")).rejects.toMatchObject({ code: "notfound" });
  expect(await namedIn(client as never, "eve")).toEqual([]);
});

test("while Redis is away a valid token of an HTTP route is not refused", async () => {
  const secret = "a secret of thirty-two bytes or a few more";
  const away = async () => Promise.reject(new AppError("unavailable", "Redis is away"));
  const authenticate = refusingLoggedOut(createAuthenticate({ jwtSecrets: [secret] }), () => away);
  expect((await authenticate(await token("fay"))).user).toBe("fay");
});

test("operators end streams by a NATS request", async () => {
  const running = await start();
  const service = await startStreamService({ nats: connection, logOut: running.logOut, version: "1.0.0", log: silent });
  cleanups.push(service.close);
  const stream = await listen(running, "gil");
  const ended = await connection.request("avion.ops.streams.end", JSON.stringify({ user_id: "gil" }));
  expect(ended.json()).toEqual({ user_id: "gil", refused_before: expect.stringMatching(/^\d{4}-/) });
  await eventually(() => stream.ended, "the end of the stream");
  const refused = await connection.request("avion.ops.streams.end", JSON.stringify({ user: "gil" }));
  expect(refused.headers?.get("Nats-Service-Error-Code")).toBe("400");
});
