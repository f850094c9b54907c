import { generateKeyPairSync } from "node:crypto";
import { request } from "node:http";
import { expect } from "@jest/globals";
import { SignJWT } from "jose";
import { jsonOf } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { JWT_SECRET } from "../support/service.js";
import { openEvents, requestEvents } from "../support/sse.js";
import { sharedStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";
import { seconds, tokenOf, unsignedToken } from "../support/tokens.js";

const guarded = sharedStack();

async function badTokens(): Promise<Array<readonly [name: string, token: string]>> {
  const good = await tokenOf("bob");
  const [head = "", body = "", signature = ""] = good.split(".");
  const forged = Buffer.from(JSON.stringify({ sub: "bob", exp: seconds() + 3_600 })).toString("base64url");
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2_048 });
  const rsa = new SignJWT({ sub: "bob", exp: seconds() + 3_600 }).setProtectedHeader({ alg: "RS256" });
  const unsafe = (header: Record<string, unknown>): string => unsignedToken("bob", header);
  return [
    ["expired", await tokenOf("bob", { exp: seconds() - 60 })],
    ["expired long ago", await tokenOf("bob", { exp: 1 })],
    ["without exp", await tokenOf("bob", { exp: null })],
    ["signed with another secret", await tokenOf("bob", { secret: "another secret, just as long as it must be" })],
    ["signed with an empty-ish secret", await tokenOf("bob", { secret: " " })],
    ["alg none", unsafe({ alg: "none", typ: "JWT" })],
    ["alg None", unsafe({ alg: "None" })],
    ["alg none with a signature", `${unsafe({ alg: "none" })}${signature}`],
    ["signature cut off", `${head}.${body}.`],
    ["signature changed", `${head}.${body}.${signature.slice(0, -2)}${signature.endsWith("AA") ? "BB" : "AA"}`],
    ["another body", `${head}.${forged}.${signature}`],
    ["RS256", await rsa.sign(privateKey)],
    ["not before tomorrow", await tokenOf("bob", { claims: { nbf: seconds() + 86_400 } })],
    ["without sub", await tokenOf(undefined)],
    ["empty sub", await tokenOf("")],
    ["sub is a number", await tokenOf(undefined, { claims: { sub: 42 } })],
    ["sub is a list", await tokenOf(undefined, { claims: { sub: ["bob"] } })],
    ["sub of 129 bytes", await tokenOf("x".repeat(129))],
    ["no token at all", "garbage"],
    ["two dots", ".."],
    ["exp is text", await tokenOf("bob", { exp: null, claims: { exp: "tomorrow" } })],
  ];
}

guarded("a token that is missing or not valid in any way gets 401 as a problem", async ({ service }) => {
  const tokens = await badTokens();
  const requests = [
    { name: "nothing", headers: {} },
    { name: "empty bearer", headers: { authorization: "Bearer " } },
    { name: "basic", headers: { authorization: `Basic ${Buffer.from("bob:bob").toString("base64")}` } },
    { name: "empty cookie", headers: { cookie: "access_token=" } },
    ...tokens.map(([name, token]) => ({ name, headers: { authorization: `Bearer ${token}` } })),
    ...tokens.map(([name, token]) => ({ name: `cookie: ${name}`, headers: { cookie: `access_token=${token}` } })),
  ];
  for (const { name, headers } of requests) {
    const answer = await requestEvents(service.httpUrl, { headers: headers as Record<string, string> });
    const type = answer.headers["content-type"] ?? "";
    expect({ name, status: answer.status, type }).toEqual({
      name,
      status: 401,
      type: expect.stringMatching(/^application\/problem\+json/),
    });
    await answer.ended;
    expect({ name, body: JSON.parse(answer.raw()) as unknown }).toMatchObject({ name, body: { status: 401 } });
    expect(answer.raw()).not.toContain(JWT_SECRET);
  }
});

guarded("an operator ends the streams of a user by a command or a request, and their tokens get 401", async (stack) => {
  const { service, streams } = stack;
  const authorization = `Bearer ${await tokenOf("lea")}`;
  const page = () => fetch(`${service.httpUrl}/api/v1/timeline/analyses`, { headers: { authorization } });
  const first = await openEvents(service.httpUrl, "lea");
  expect((await page()).status).toBe(200);
  const ended = await jsonOf(stack, ["streams", "end", "lea"]);
  expect(ended).toEqual({ user_id: "lea", refused_before: expect.stringMatching(/Z$/) });
  await first.ended;
  expect((await page()).status).toBe(401);
  const second = await requestEvents(service.httpUrl, { token: await tokenOf("lea", { iat: seconds() + 5 }) });
  expect(second.status).toBe(200);
  const answer = await streams.connection.request("avion.ops.streams.end", '{"user_id":"lea"}');
  expect(answer.json()).toMatchObject({ user_id: "lea" });
  second.close();
});

guarded("a token in the query is not taken", async ({ service }) => {
  const token = await tokenOf("bob");
  for (const name of ["access_token", "token", "authorization"]) {
    const response = await fetch(`${service.httpUrl}/events/timeline/home?${name}=${token}`);
    expect({ name, status: response.status }).toEqual({ name, status: 401 });
    await response.arrayBuffer();
  }
});

// Invariant 9.
guarded("no spelling of a name opens another user's stream", async (stack) => {
  const { service, world, publish, streams } = stack;
  const tricks = [
    "*",
    ">",
    "bob.x",
    "bob ",
    " bob",
    "=Ym9i",
    "Ym9i",
    "bob\n",
    "BOB",
    "bob\u0000",
    "b*",
    "bob.>",
    "{bob}",
    "bob%20",
    "b\u200bob",
    "~bob",
  ];
  world.follow("*", "alice");
  const bob = await openEvents(service.httpUrl, "bob");
  const open = await Promise.all(
    tricks.map(async (sub) => ({ sub, stream: await requestEvents(service.httpUrl, { token: await tokenOf(sub) }) })),
  );
  for (const { sub, stream } of open)
    expect({ sub, status: stream.status }).toEqual({ sub, status: expect.any(Number) });
  const bobs = Array.from({ length: 20 }, (_, number) => ({
    drop_id: `bobs-${number}`,
    user_id: "bob",
    visibility: "direct" as const,
    recipients: [],
    created_at: Date.now() - number,
  }));
  const alices = { drop_id: "for-the-star", user_id: "alice", visibility: "public" as const, created_at: Date.now() };
  world.post(...bobs, alices);
  await publish(...bobs.map(created), created(alices));
  await eventually(() => bob.drops().length >= bobs.length, "bob's own drops");
  await streams.settled(bobs.length + 1);
  const star = open.find(({ sub }) => sub === "*")?.stream;
  expect(star?.status).toBe(200);
  await eventually(() => star?.drops().includes("for-the-star") === true, "the user called * hears what is for *");
  for (const { sub, stream } of open) {
    expect({ sub, heard: stream.drops().filter((id) => id.startsWith("bobs-")) }).toEqual({ sub, heard: [] });
    expect(stream.raw()).not.toContain("bobs-");
  }
  // Replays are as separate as live events: everything from the start, for every spelling.
  for (const { sub, stream } of open) {
    stream.close();
    const again = await requestEvents(service.httpUrl, {
      token: await tokenOf(sub),
      lastEventId: bob.events[0]?.id ?? "1",
    });
    if (again.status === 200) await eventually(() => again.raw().includes("\n\n"), "the first bytes");
    expect(again.raw()).not.toContain("bobs-");
    again.close();
  }
  bob.close();
});

guarded("the absolute form of the address is that of the stream, too", async ({ service }) => {
  const { hostname, port } = new URL(service.httpUrl);
  const path = `${service.httpUrl}/events/timeline/home`;
  const status = await new Promise((resolve, reject) => {
    const call = request({ hostname, port, path, agent: false }, ({ statusCode }) => resolve(statusCode));
    call.once("error", reject);
    call.end();
  });
  expect(status).toBe(401);
});

guarded("other paths and methods are refused without harm", async ({ service }) => {
  const status = async (method: string, path: string): Promise<number> =>
    new Promise((resolve, reject) => {
      const call = request(`${service.httpUrl}${path}`, { method, agent: false }, (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      });
      call.once("error", reject);
      call.end();
    });
  for (const [method, path] of [
    ["GET", "/nothing"],
    ["POST", "/events/timeline/home"],
    ["DELETE", "/metrics"],
    ["GET", "/events/timeline/home/x"],
  ] as const) {
    const code = await status(method, path);
    expect({ method, path, refused: code >= 400 && code < 500 }).toEqual({ method, path, refused: true });
  }
  expect(await status("GET", "/healthz")).toBe(200);
  expect(await status("GET", "/readyz")).toBe(200);
});
