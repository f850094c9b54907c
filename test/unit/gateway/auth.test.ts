import { createHmac } from "node:crypto";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "@jest/globals";
import fc from "fast-check";
import { exportJWK, exportSPKI, generateKeyPair, type JWTPayload, jwtVerify, SignJWT } from "jose";
import {
  createAuthenticate,
  createAuthorize,
  createAuthorizeOperator,
  findCredentials,
  originAllowed,
} from "../../../src/gateway/auth.js";
import { followKeys } from "../../../src/gateway/keys.http.js";
import { silent } from "../../../src/kernel/logger.js";
import { eventually } from "../../support/eventually.js";

const SECRET = "a secret of thirty-two bytes or a few more";
const now = (): number => Math.floor(Date.now() / 1_000);
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function sign(claims: JWTPayload, secret = SECRET, alg = "HS256"): Promise<string> {
  return new SignJWT(claims).setProtectedHeader({ alg }).sign(bytes(secret));
}

const valid = (more: JWTPayload = {}): JWTPayload => ({ sub: "alice", exp: now() + 60, ...more });
const bySecret = createAuthenticate({ jwtSecrets: [SECRET] });
const refused = { code: "unauthenticated" };

test("a valid token names its user and its end", async () => {
  const claims = valid();
  expect(await bySecret(await sign(claims))).toEqual({
    user: "alice",
    expiresAt: (claims.exp as number) * 1_000,
    issuedAt: 0,
  });
  expect((await bySecret(await sign(valid({ iat: 5 })))).issuedAt).toBe(5_000);
});

const none = (claims: JWTPayload): string =>
  `${[{ alg: "none", typ: "JWT" }, claims].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".")}.`;

test.each<[string, () => Promise<string> | string]>([
  ["an empty token", () => ""],
  ["no token at all", () => "nonsense"],
  ["alg none", () => none(valid())],
  ["another key", () => sign(valid(), `${SECRET}!`)],
  ["another algorithm with the same secret", () => sign(valid(), SECRET, "HS512")],
  ["an expired one", () => sign(valid({ exp: now() - 60 }))],
  ["one expired a second ago", () => sign(valid({ exp: now() - 1 }))],
  ["no exp", () => sign({ sub: "alice" })],
  ["an exp that is no number", () => sign(valid({ exp: "never" as never }))],
  ["one not valid yet", () => sign(valid({ nbf: now() + 60 }))],
  ["no sub", () => sign({ exp: now() + 60 })],
  ["an empty sub", () => sign(valid({ sub: "" }))],
  ["a sub that is no string", () => sign(valid({ sub: 5 as never }))],
  ["the sub of a list", () => sign(valid({ sub: "list:0190a1b2-0000-7000-8000-000000000000" }))],
  ["a sub too long", () => sign(valid({ sub: "ä".repeat(65) }))],
  ["a sub that is not well-formed", () => sign(valid({ sub: "\ud800" }))],
  ["a token too long", () => sign(valid({ more: "x".repeat(9_000) }))],
])("%s is refused", async (_name, token) => {
  await expect(bySecret(await token())).rejects.toMatchObject(refused);
});

test("of all HS256 tokens, whole or altered, those are accepted that the library accepts", async () => {
  const strict = createAuthenticate({ jwtSecrets: [SECRET], jwtIssuer: "us", jwtAudience: "timeline" });
  const options = { algorithms: ["HS256"], issuer: "us", audience: "timeline", requiredClaims: ["exp", "sub"] };
  const encode = (part: unknown): string => Buffer.from(JSON.stringify(part)).toString("base64url");
  const time = fc.constantFrom(now() + 60, now() - 60, "soon", undefined);
  const claims = fc.record({
    sub: fc.constantFrom("alice", undefined),
    exp: fc.oneof({ arbitrary: fc.constant(now() + 60), weight: 4 }, time),
    nbf: fc.constantFrom(undefined, now() - 60, now() + 60, "x"),
    iss: fc.constantFrom("us", "us", "us", "them"),
    aud: fc.constantFrom("timeline", ["other", "timeline"], ["other"]),
  });
  const header = fc.constantFrom(
    ...[{ alg: "HS256" }, { alg: "HS256", kid: "k", typ: "x" }, { alg: "HS384" }, { alg: "none" }],
    ...[{ alg: "HS256", crit: ["exp"], exp: 1 }, { typ: "JWT" }, "HS256", null],
  );
  const altered = fc.option(fc.tuple(fc.nat(400), fc.constantFrom("", "A", ".", "=", "é")), { freq: 3 });
  const verdicts = new Set<boolean>();
  await fc.assert(
    fc.asyncProperty(header, claims, altered, async (head, body, change) => {
      const text = `${encode(head)}.${encode(body)}`;
      const whole = `${text}.${createHmac("sha256", SECRET).update(text).digest("base64url")}`;
      const [at, by] = change ?? [0, whole[0] as string];
      const token = at < whole.length ? whole.slice(0, at) + by + whole.slice(at + 1) : whole;
      const accepted = await jwtVerify(token, bytes(SECRET), options).then(
        () => true,
        () => false,
      );
      verdicts.add(accepted);
      const outcome = strict(token).then(({ user }) => user);
      if (accepted) expect(await outcome).toBe("alice");
      else await expect(outcome).rejects.toMatchObject(refused);
    }),
    { numRuns: 500 },
  );
  expect(verdicts.size).toBe(2);
});

test("while a secret is replaced, tokens of both are valid, by the same rules", async () => {
  const both = createAuthenticate({ jwtSecrets: [`new, and ${SECRET}`, SECRET], jwtIssuer: "us" });
  for (const secret of [`new, and ${SECRET}`, SECRET]) {
    expect((await both(await sign(valid({ iss: "us" }), secret))).user).toBe("alice");
    await expect(both(await sign(valid({ iss: "them" }), secret))).rejects.toMatchObject(refused);
    await expect(both(await sign(valid({ iss: "us", exp: now() - 1 }), secret))).rejects.toMatchObject(refused);
  }
  await expect(both(await sign(valid({ iss: "us" }), `${SECRET}!`))).rejects.toMatchObject(refused);
});

test("a clock a few seconds off does not matter", async () => {
  expect((await bySecret(await sign(valid({ nbf: now() + 3 })))).user).toBe("alice");
});

test("issuer and audience are checked where they are configured", async () => {
  const strict = createAuthenticate({ jwtSecrets: [SECRET], jwtIssuer: "us", jwtAudience: "timeline" });
  const good = { iss: "us", aud: ["other", "timeline"] };
  expect((await strict(await sign(valid(good)))).user).toBe("alice");
  for (const wrong of [{}, { iss: "us" }, { aud: "timeline" }, { ...good, iss: "them" }, { ...good, aud: "other" }]) {
    await expect(strict(await sign(valid(wrong)))).rejects.toMatchObject(refused);
  }
});

test("exactly one of a secret and a URL is accepted", () => {
  expect(() => createAuthenticate({})).toThrow("either a secret or a JWKS URL");
  expect(() => createAuthenticate({ jwtSecrets: [] })).toThrow();
  expect(() => createAuthenticate({ jwtSecrets: [SECRET], verify: () => Promise.reject(new Error()) })).toThrow();
});

type KeyPair = Awaited<ReturnType<typeof generateKeyPair>>;
const pairs: KeyPair[] = [];
let server: Server;
let jwksUrl = "";
/** The answer of the server of the keys. */
let answer: (response: ServerResponse) => void;
let asked = 0;
const closes: (() => unknown)[] = [];

const names = async (...kids: number[]): Promise<string> => {
  const keys = kids.map(async (kid) => ({
    ...(await exportJWK((pairs[kid] as KeyPair).publicKey)),
    ...{ kid: `k${kid}`, alg: "RS256", use: "sig" },
  }));
  return JSON.stringify({ keys: await Promise.all(keys) });
};

beforeAll(async () => {
  for (let kid = 0; kid < 3; kid++) pairs.push(await generateKeyPair("RS256", { extractable: true }));
  server = createServer((_request, response) => {
    asked++;
    answer(response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  jwksUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks`;
});

beforeEach(async () => {
  const keys = await names(1);
  answer = (response) => response.end(keys);
  asked = 0;
});

afterEach(async () => {
  for (const close of closes.splice(0)) await close();
});

afterAll(() => {
  server.close();
  server.closeAllConnections();
});

/** The pair of the key `k1`, which the server names from the start. */
const pair = (kid = 1): KeyPair => pairs[kid] as KeyPair;

function fromServer(options: Partial<Parameters<typeof followKeys>[0]> = {}) {
  const keys = followKeys({ url: jwksUrl, maxAgeMs: 60_000, log: silent, leastMs: 0, ...options });
  closes.push(keys.close);
  const authenticate = createAuthenticate({ verify: keys.verify });
  const operator = createAuthenticate({ verify: keys.verify }, { name: "role", value: "ops" });
  return { ...keys, authenticate, authorizeOperator: createAuthorizeOperator(operator) };
}

const signed = (kid: string | undefined, key: KeyPair["privateKey"]): Promise<string> =>
  new SignJWT(valid()).setProtectedHeader(kid === undefined ? { alg: "RS256" } : { alg: "RS256", kid }).sign(key);

const tokenOf = (kid: number): Promise<string> => signed(`k${kid}`, pair(kid).privateKey);

test("public keys are fetched, and only their algorithms count", async () => {
  const { authenticate } = fromServer();
  expect((await authenticate(await tokenOf(1))).user).toBe("alice");
  await expect(authenticate(await signed("k1", pair(0).privateKey))).rejects.toMatchObject(refused);
  await expect(authenticate(await signed("k9", pair().privateKey))).rejects.toMatchObject(refused);
  // The classic confusion: the public key taken for a shared secret.
  const confused = await sign(valid(), await exportSPKI(pair().publicKey));
  await expect(authenticate(confused)).rejects.toMatchObject(refused);
});

const away = { code: "unavailable" };

test("keys that cannot be fetched are an outage, not an invalid token, and are named as the reason", async () => {
  const { authenticate, notReady } = fromServer({ url: "http://127.0.0.1:9/jwks" });
  await expect(authenticate(await tokenOf(1))).rejects.toMatchObject(away);
  await expect(authenticate(await sign(valid()))).rejects.toMatchObject(refused);
  expect(notReady()).toBe("the keys that sign access tokens cannot be fetched");
});

test("while the key server is away, known keys go on until the bound; an unknown key is an outage", async () => {
  let time = 0;
  const { authenticate, notReady } = fromServer({ now: () => time });
  await authenticate(await tokenOf(1));
  answer = (response) => response.writeHead(500).end();
  time += 59_999;
  expect((await authenticate(await tokenOf(1))).user).toBe("alice");
  await expect(authenticate(await tokenOf(2))).rejects.toMatchObject(away);
  expect(notReady()).toBeUndefined();
  time += 1;
  await expect(authenticate(await tokenOf(1))).rejects.toMatchObject(away);
  expect(notReady()).toBeDefined();
});

test("a key server that hangs costs a known key nothing", async () => {
  const { authenticate } = fromServer({ refreshMs: 5 });
  await authenticate(await tokenOf(1));
  const hanging: ServerResponse[] = [];
  answer = (response) => void hanging.push(response);
  await eventually(() => hanging.length > 0, "the keys are asked for");
  expect((await authenticate(await tokenOf(1))).user).toBe("alice");
  expect(hanging[0]?.writableEnded).toBe(false);
  hanging[0]?.writeHead(500).end();
});

test("a key that was added is found by its first token, and one that was removed is forgotten", async () => {
  const { authenticate } = fromServer();
  await authenticate(await tokenOf(1));
  const rotated = await names(2);
  answer = (response) => response.end(rotated);
  expect((await authenticate(await tokenOf(2))).user).toBe("alice");
  await expect(authenticate(await tokenOf(1))).rejects.toMatchObject(refused);
});

test("tokens of unknown keys share one request at a time, and wait for one that began after they came", async () => {
  const { authenticate } = fromServer({ leastMs: 1_000 });
  await authenticate(await tokenOf(1));
  const first = asked;
  const rotated = await names(1, 2);
  answer = (response) => response.end(rotated);
  const forged = await Promise.all(Array.from({ length: 50 }, (_, at) => signed(`x${at}`, pair(0).privateKey)));
  const outcomes = await Promise.allSettled([...forged.map(authenticate), authenticate(await tokenOf(2))]);
  expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  expect(outcomes.at(-1)).toMatchObject({ status: "fulfilled", value: { user: "alice" } });
  expect(asked - first).toBeLessThanOrEqual(2);
});

test("a token that names no key is valid by any key, also by one published just now, for users and operators", async () => {
  const { authenticate, authorizeOperator } = fromServer();
  const unnamed = (kid: number, more: JWTPayload = {}) =>
    new SignJWT(valid(more)).setProtectedHeader({ alg: "RS256" }).sign(pair(kid).privateKey);
  const both = await names(0, 1);
  answer = (response) => response.end(both);
  for (const kid of [0, 1]) expect((await authenticate(await unnamed(kid))).user).toBe("alice");
  const operator = { authorization: `Bearer ${await unnamed(1, { role: "ops" })}` };
  expect((await authorizeOperator(operator)).user).toBe("alice");
  await expect(authorizeOperator({ authorization: `Bearer ${await unnamed(1)}` })).rejects.toMatchObject({
    code: "forbidden",
  });
  const known = asked;
  await expect(authenticate(await unnamed(1, { exp: now() - 60 }))).rejects.toMatchObject(refused);
  expect(asked).toBe(known);
  await expect(authenticate(await unnamed(2))).rejects.toMatchObject(refused);
  expect(asked).toBe(known + 1);
  const rotated = await names(0, 1, 2);
  answer = (response) => response.end(rotated);
  expect((await authenticate(await unnamed(2))).user).toBe("alice");
  await expect(authenticate(await signed("k1", pair(0).privateKey))).rejects.toMatchObject(refused);
  expect(asked).toBe(known + 2);
});

test("of cookies of one name the first that is valid counts", async () => {
  const authorize = createAuthorize(bySecret, new Set());
  const [alice, bob] = [await sign(valid()), await sign(valid({ sub: "bob" }))];
  const expired = await sign(valid({ exp: now() - 60 }));
  const userOf = async (...tokens: string[]) =>
    (await authorize({ cookie: tokens.map((token) => `access_token=${token}`).join("; ") })).user;
  expect(await userOf(expired, alice)).toBe("alice");
  expect(await userOf("nonsense", bob, alice)).toBe("bob");
  expect(await userOf(alice, expired)).toBe("alice");
  await expect(userOf(expired, "nonsense")).rejects.toMatchObject(refused);
  const { authenticate } = fromServer({ url: "http://127.0.0.1:9/jwks" });
  const unknown = createAuthorize(
    authenticate,
    new Set(),
  )({ cookie: `access_token=${expired}; access_token=${await tokenOf(1)}` });
  await expect(unknown).rejects.toMatchObject(away);
});

test("a key server that names no key at all does not take the known keys away", async () => {
  const { authenticate } = fromServer();
  await authenticate(await tokenOf(1));
  answer = (response) => response.end('{"keys":[]}');
  await expect(authenticate(await tokenOf(2))).rejects.toMatchObject(away);
  expect((await authenticate(await tokenOf(1))).user).toBe("alice");
});

test("a token comes from the header, or else from the cookie", () => {
  expect(findCredentials({ authorization: "Bearer a.b.c", cookie: "access_token=x" })).toEqual({
    tokens: ["a.b.c"],
    method: "bearer",
  });
  expect(findCredentials({ authorization: "bearer  a.b.c" })?.tokens).toEqual(["a.b.c"]);
  expect(findCredentials({ cookie: 'x=1; access_token="a.b.c"; y=2; access_token=; access_token=d' })).toEqual({
    tokens: ["a.b.c", "d"],
    method: "cookie",
  });
  for (const authorization of ["Basic eA==", "Bearer", "Bearer ", "", "Bearer a b"]) {
    expect(findCredentials({ authorization, cookie: "access_token=x" })).toBeUndefined();
  }
  for (const cookie of ["", "access_token=", "Xaccess_token=a", "access_token"])
    expect(findCredentials({ cookie })).toBeUndefined();
});

test("a cookie counts for pages of the same host and listed origins", () => {
  const allowed = new Set(["https://app.example"]);
  const host = "api.example:8080";
  expect(originAllowed({ host }, allowed)).toBe(true);
  expect(originAllowed({ host, origin: "https://app.example" }, allowed)).toBe(true);
  expect(originAllowed({ host, origin: "http://api.example:8080" }, allowed)).toBe(true);
  for (const origin of ["https://evil.example", "null", "", "https://app.example.evil", "http://api.example"]) {
    expect(originAllowed({ host, origin }, allowed)).toBe(false);
  }
});

test("a host with the default port of the origin's protocol is the origin's own", () => {
  const isAllowed = (host: string, origin: string) => originAllowed({ host, origin }, new Set());
  expect(isAllowed("app.example:443", "https://app.example")).toBe(true);
  expect(isAllowed("APP.example:80", "http://app.example")).toBe(true);
  expect(isAllowed("[::1]:443", "https://[::1]")).toBe(true);
  expect(isAllowed("app.example:80", "https://app.example")).toBe(false);
  expect(isAllowed("app.example:443", "https://app.example:8443")).toBe(false);
  expect(isAllowed("evil.example/@app.example", "https://app.example")).toBe(false);
  expect(isAllowed("", "null")).toBe(false);
});

test.each<[site: string, origin: string | undefined, isAllowed: boolean]>([
  ["same-origin", undefined, true],
  ["same-origin", "https://page.example", true],
  ["same-origin", "null", true],
  ["none", undefined, true],
  ["same-site", undefined, false],
  ["cross-site", undefined, false],
  ["cross-site", "http://gateway:8080", false],
  ["cross-site", "https://app.example", true],
  ["same-site", "https://app.example", true],
  ["same-origin, cross-site", "https://page.example", false],
  ["", undefined, false],
])(
  "Sec-Fetch-Site: %s decides about a cookie with the origin %s, whatever a proxy made of Host",
  (site, origin, isAllowed) => {
    const headers = { host: "gateway:8080", origin, "sec-fetch-site": site };
    expect(originAllowed(headers, new Set(["https://app.example"]))).toBe(isAllowed);
  },
);
