import { type AddressInfo, createServer } from "node:net";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { isPublicAddress } from "../../src/platform/http/public-addresses.js";
import { createPublicFetch, type PublicFetchOptions } from "../../src/platform/http/public-fetch.js";
import { ACTIVITY, type HostileServer, json, redirect, startHostileServer } from "../support/hostile-server.js";

const MAX_BYTES = 10_000;

let server: HostileServer;
beforeAll(async () => {
  server = await startHostileServer();
});
afterAll(() => server.stop());

/** Resolves to the body, or to the fault. */
async function outcome(url: string, options: Partial<PublicFetchOptions> = {}): Promise<string> {
  const publicFetch = createPublicFetch({
    ...{ timeoutMs: 10_000, maxBytes: MAX_BYTES, maxRedirects: 3, types: [ACTIVITY, "application/json"] },
    userAgent: "test",
    ...server.seam,
    ...options,
  });
  const answer = await publicFetch(url);
  return "fault" in answer ? `fault: ${answer.fault}` : answer.body.toString();
}

const bytes = (size: number): string => "x".repeat(size);

/** A body that comes in pieces, without its length. */
const endless = (answered: { closed?: Promise<void> }, everyMs: number): string =>
  server.add((_request, response) => {
    response.writeHead(200, { "content-type": ACTIVITY });
    const timer = setInterval(() => response.write(" "), everyMs);
    answered.closed = new Promise((resolve) => {
      response.once("close", () => {
        clearInterval(timer);
        resolve();
      });
    });
  });

test("a document is fetched without cookies, and not compressed", async () => {
  let headers = {};
  const url = server.add((request, response) => {
    headers = request.headers;
    json("hello")(request, response);
  });
  expect(await outcome(`${url}?page=1#top`)).toBe("fault: status");
  expect(await outcome(`${url}#top`)).toBe('"hello"');
  expect(headers).toEqual({
    host: "elsewhere.example",
    accept: `${ACTIVITY}, application/json`,
    "accept-encoding": "identity",
    "user-agent": "test",
    connection: "close",
  });
});

test.each([
  "http://elsewhere.example/1",
  "https://elsewhere.example:8443/1",
  "https://elsewhere.example:22/1",
  "https://user@elsewhere.example/1",
  "https://user:password@elsewhere.example/1",
  "ftp://elsewhere.example/1",
  "file:///etc/passwd",
  "no url",
])("%s is not fetched", async (url) => {
  expect(await outcome(url)).toBe("fault: url");
});

test.each([
  ...["https://127.0.0.1/", "https://127.1/", "https://2130706433/", "https://0x7f000001/", "https://017700000001/"],
  ...["https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:a9fe:a9fe]/", "https://[64:ff9b::7f00:1]/"],
  ...["https://169.254.169.254/latest/meta-data/", "https://10.0.0.1/", "https://0/", "https://[fd00:ec2::254]/"],
])("the address in %s is not asked", async (url) => {
  expect(await outcome(url, { isPublic: isPublicAddress })).toBe("fault: address");
});

test.each([
  ["a private address", ["10.1.2.3"]],
  ["a private address beside a public one", ["127.0.0.1", "192.168.0.1"]],
  ["an IPv4-mapped address", ["::ffff:127.0.0.1"]],
  ["the address of metadata", ["169.254.169.254"]],
  ["no address", []],
])("a name with %s is not asked", async (_what, addresses) => {
  const url = server.add(json("secret"), "inner");
  server.names.set("inner.elsewhere.example", addresses);
  expect(await outcome(url)).toBe("fault: address");
  expect(server.asked(url)).toBe(0);
});

test("a name is resolved once, so that the address that was checked is the one that is asked", async () => {
  const url = server.add(json("hello"), "changing");
  const answers = [["127.0.0.1"], ["10.0.0.1"]];
  const resolve = async (): Promise<string[]> => answers.shift() ?? [];
  expect(await outcome(url, { resolve })).toBe('"hello"');
  expect(answers).toEqual([["10.0.0.1"]]);
  expect(await outcome(url, { resolve })).toBe("fault: address");
  expect(server.asked(url)).toBe(1);
});

test("a name whose address changes is resolved again for a redirect", async () => {
  const answers = [["127.0.0.1"], ["10.0.0.1"]];
  const target = server.add(json("secret"));
  const url = server.add(redirect(target));
  expect(await outcome(url, { resolve: async () => answers.shift() ?? [] })).toBe("fault: address");
  expect([server.asked(url), server.asked(target)]).toEqual([1, 0]);
});

test("three redirects are followed, a fourth is not", async () => {
  let url = server.add(json("hello"));
  for (const status of [301, 307, 308]) url = server.add(redirect(new URL(url).pathname, status));
  expect(await outcome(url)).toBe('"hello"');
  expect(await outcome(server.add(redirect(url, 303)))).toBe("fault: redirects");
});

test("a redirect loop ends", async () => {
  const url = server.add((request, response) => redirect(request.url ?? "")(request, response));
  expect(await outcome(url)).toBe("fault: redirects");
  expect(server.asked(url)).toBe(4);
});

test.each([
  ["http", "http://elsewhere.example/1", "url"],
  ["another port", "https://elsewhere.example:6379/", "url"],
  ["credentials", "https://a:b@elsewhere.example/1", "url"],
  ["a private address", "https://10.0.0.1/", "redirects"],
  ["the address of metadata", "https://169.254.169.254/", "redirects"],
  ["an IPv4-mapped address", "//[::ffff:10.0.0.1]/", "redirects"],
  ["what is no URL", "https://", "redirects"],
])("a redirect to %s is not followed", async (_what, location, fault) => {
  expect(await outcome(server.add(redirect(location)))).toBe(`fault: ${fault}`);
});

test("a redirect without a location leads nowhere", async () => {
  const url = server.add((_request, response) => void response.writeHead(302).end());
  expect(await outcome(url)).toBe("fault: redirects");
});

test("a redirect to another host is not followed: it may not speak for the first", async () => {
  const target = server.add(json("hello"), "b");
  const url = server.add(redirect(target), "a");
  expect(await outcome(url)).toBe("fault: redirects");
  expect([server.asked(url), server.asked(target)]).toEqual([1, 0]);
});

test.each<[string, Readonly<Record<string, string>>, string]>([
  ["HTML", { "content-type": "text/html" }, "type"],
  ["of no type", { "content-type": "" }, "type"],
  ["of a type that only begins like one of JSON", { "content-type": "application/jsonx" }, "type"],
  ["compressed", { "content-encoding": "gzip" }, "encoding"],
])("an answer that is %s is refused", async (_what, headers, fault) => {
  expect(await outcome(server.add(json("hello", headers)))).toBe(`fault: ${fault}`);
});

test("the type of an answer may be in any case, and have parameters", async () => {
  const url = server.add(json("hello", { "content-type": 'Application/JSON; profile="x"' }));
  expect(await outcome(url)).toBe('"hello"');
});

test("a compressed answer is not decompressed, whatever it would become", async () => {
  const url = server.add((_request, response) => {
    response.writeHead(200, { "content-type": ACTIVITY, "content-encoding": "gzip" });
    response.end(gzipSync(Buffer.alloc(50 * 1_024 * 1_024)));
  });
  expect(await outcome(url, { maxBytes: 1_024 * 1_024 })).toBe("fault: encoding");
});

test.each([
  [204, "status"],
  [206, "status"],
  [304, "status"],
  [401, "status"],
  [404, "status"],
  [410, "status"],
  [429, "overload"],
  [500, "overload"],
  [503, "overload"],
])("the status %i is the fault %s", async (status, fault) => {
  const url = server.add((_request, response) => void response.writeHead(status, { "content-type": ACTIVITY }).end());
  expect(await outcome(url)).toBe(`fault: ${fault}`);
});

test("a body of the largest size is read, and no larger one", async () => {
  const sized = (size: number): string =>
    server.add((_request, response) => void response.writeHead(200, { "content-type": ACTIVITY }).end(bytes(size)));
  expect(await outcome(sized(MAX_BYTES))).toHaveLength(MAX_BYTES);
  expect(await outcome(sized(MAX_BYTES + 1))).toBe("fault: size");
});

test("a body without a length is given up at the largest size", async () => {
  const answered: { closed?: Promise<void> } = {};
  const url = endless(answered, 0);
  expect(await outcome(url, { maxBytes: 20 })).toBe("fault: size");
  await answered.closed;
});

test("a body that is shorter than its content-length is refused", async () => {
  const url = server.add((_request, response) => {
    response.writeHead(200, { "content-type": ACTIVITY, "content-length": "100" });
    response.write("half");
    setImmediate(() => response.destroy());
  });
  expect(await outcome(url)).toBe("fault: unreachable");
});

test("headers that never end are refused", async () => {
  const url = server.add((_request, response) => {
    response.socket?.write("HTTP/1.1 200 OK\r\n");
    response.socket?.write(`x-long: ${bytes(100_000)}\r\n`);
  });
  expect(await outcome(url)).toBe("fault: unreachable");
});

test("a server that switches protocols gets no connection", async () => {
  const url = server.add((_request, response) => {
    response.socket?.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n");
  });
  expect(await outcome(url)).toMatch(/^fault: (status|unreachable)$/);
});

test.each(["headers that never come", "a body that drips"])(
  "%s take no longer than the whole fetch may",
  async (what) => {
    const answered: { closed?: Promise<void> } = {};
    const url = what === "drops of a body" ? endless(answered, 20) : server.add(() => undefined);
    expect(await outcome(url, { timeoutMs: 300 })).toBe("fault: late");
    await answered.closed;
  },
);

test("redirects that come slowly take no longer than the whole fetch may", async () => {
  const slow: Parameters<HostileServer["add"]>[0] = (request, response) =>
    void setTimeout(() => redirect(request.url ?? "")(request, response), 200);
  expect(await outcome(server.add(slow), { timeoutMs: 300 })).toBe("fault: late");
});

test("a name that is never resolved takes no longer than the whole fetch may", async () => {
  const resolve = (): Promise<string[]> => new Promise(() => undefined);
  expect(await outcome(server.add(json("hello")), { resolve, timeoutMs: 100 })).toBe("fault: late");
});

test("a name that cannot be resolved now is unreachable", async () => {
  const resolve = (): Promise<string[]> => Promise.reject(new Error("SERVFAIL"));
  expect(await outcome(server.add(json("hello")), { resolve })).toBe("fault: unreachable");
});

test("a server that accepts connections and is silent takes no longer than the whole fetch may", async () => {
  const silent = createServer((socket) => socket.resume());
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const { port } = silent.address() as AddressInfo;
  expect(await outcome("https://elsewhere.example/", { port, timeoutMs: 300 })).toBe("fault: late");
  await new Promise((resolve) => silent.close(resolve));
  expect(await outcome("https://elsewhere.example/", { port })).toBe("fault: unreachable");
});

test("a certificate for another name, or of an unknown issuer, is refused", async () => {
  server.names.set("other.example", ["127.0.0.1"]);
  expect(await outcome("https://other.example/")).toBe("fault: unreachable");
  const url = server.add(json("hello"));
  const { ca: _ca, ...unknown } = server.seam;
  const publicFetch = createPublicFetch({
    ...{ timeoutMs: 10_000, maxBytes: MAX_BYTES, maxRedirects: 3, types: [ACTIVITY], userAgent: "test" },
    ...unknown,
  });
  expect(await publicFetch(url)).toMatchObject({ fault: "unreachable" });
  expect(server.asked(url)).toBe(0);
});
