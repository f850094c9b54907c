import { expect } from "@jest/globals";
import { listPath, TIMELINES, timelinePath } from "../../src/contracts/timeline-pages.js";
import { ERASED_KEY, FLOOR_MEMBER } from "../../src/state/keys.js";
import { type Answer, call } from "../support/analysis-http.js";
import { becomes } from "../support/eventually.js";
import type { Service } from "../support/service.js";
import { type Stack, sharedStack } from "../support/stack.js";
import { created, deleted } from "../support/timeline-events.js";
import { tokenOf } from "../support/tokens.js";

const APP = "https://app.example";
const DROPS = 25;

const pages = sharedStack({ roles: "bridge,fanout,api" });

/** A gateway beside the first service, whose pages it serves. */
async function openGateway(stack: Stack, api = stack.service.grpcAddress): Promise<Service> {
  return stack.start({ roles: "gateway", env: { TIMELINE_API_ADDR: api, TIMELINE_ALLOWED_ORIGINS: APP } });
}

/** Drops of an author whom the reader follows, oldest first. */
async function post(stack: Stack, { author, reader }: { author: string; reader: string }): Promise<string[]> {
  const start = Date.now() - 60_000;
  const drops = Array.from({ length: DROPS }, (_, number) => ({
    ...{ drop_id: `${author}-${number}`, user_id: author, created_at: start + number },
    visibility: "public" as const,
  }));
  stack.world.follow(reader, author);
  stack.world.post(...drops);
  const before = await stack.streams.count("DROPS");
  await stack.publish(...drops.map(created));
  await stack.streams.settled(before + DROPS);
  return drops.map(({ drop_id }) => drop_id);
}

/** Returns where a link of an answer leads. */
function linkOf({ headers }: Answer, rel: string): string | undefined {
  return new RegExp(`<([^>]+)>; rel="${rel}"`).exec(headers.get("link") ?? "")?.[1];
}

const fieldsOf = ({ body }: Answer): unknown[] => body.errors?.map(({ field }: { field: string }) => field);

pages("pages over HTTP are those of gRPC, and links lead through them, down and up again", async (stack) => {
  const drops = await post(stack, { author: "alice", reader: "bob" });
  const { httpUrl } = await openGateway(stack);
  const read = (path: string) => call(httpUrl + path, { user: "bob" });
  const { reads } = stack;
  const grpc = {
    home: reads.home("bob"),
    local: reads.local({ user_id: "bob" }),
    global: reads.global({ user_id: "bob" }),
  };
  for (const name of TIMELINES) {
    const first = await read(timelinePath(name));
    expect([name, first.status, first.body]).toEqual([name, 200, await grpc[name]]);
    expect(first.headers.get("cache-control")).toBe("no-store");
    const found: string[] = [];
    let page = await read(`${timelinePath(name)}?limit=10`);
    for (;;) {
      found.push(...page.body.drop_ids);
      const next = linkOf(page, "next");
      expect([name, next !== undefined]).toEqual([name, page.body.has_more]);
      if (next === undefined) break;
      page = await read(next);
    }
    expect(found).toEqual(drops.toReversed());
    const up = await read(linkOf(page, "prev") as string);
    expect(up.body.drop_ids).toEqual(found.slice(10, 20));
    const newest = await read(`${timelinePath(name)}?since_id=${drops[22]}`);
    expect(newest.body.drop_ids).toEqual(drops.slice(23).toReversed());
  }
});

// Contract: reposts once, items.
pages("a drop and its reposts are shown once in a home, with who reposted it, over gRPC and HTTP", async (stack) => {
  const { httpUrl } = await openGateway(stack);
  const { world, reads } = stack;
  const start = Date.now() - 60_000;
  const sharers = ["gil", "hao", "ida", "jon"];
  for (const author of ["fox", ...sharers]) world.follow("kim", author);
  const original = { drop_id: "fox-1", user_id: "fox", created_at: start, visibility: "public" } as const;
  const reposts = sharers.map((user_id, number) => ({
    ...{ drop_id: `${user_id}-1`, user_id, created_at: start + 1 + number, visibility: "public" as const },
    ...{ repost_of: "fox-1", repost_author: "fox" },
  }));
  world.post(original, ...reposts);
  const before = await stack.streams.count("DROPS");
  await stack.publish(...[original, ...reposts].map(created));
  await stack.streams.settled(before + 5);
  const http = async (name: (typeof TIMELINES)[number]) =>
    (await call(httpUrl + timelinePath(name), { user: "kim" })).body.items;
  const once = {
    ...{ drop_id: "jon-1", created_at: start + 4 },
    ...{ repost_of: "fox-1", reposted_by: ["jon", "ida", "hao"] },
  };
  expect((await reads.home("kim")).items).toEqual([once]);
  expect(await http("home")).toEqual([once]);
  const plain = { drop_id: "fox-1", created_at: start, repost_of: "", reposted_by: [] };
  expect((await reads.local({ user_id: "kim" })).items).toContainEqual(plain);
  expect(await http("local")).toContainEqual(plain);
  world.remove("jon-1");
  await stack.publish(deleted("jon-1", "jon"));
  await becomes(async () =>
    expect(await http("home")).toMatchObject([{ drop_id: "ida-1", reposted_by: ["ida", "hao", "gil"] }]),
  );
});

pages("a list of nobody is not found, also where the users service has no lists", async (stack) => {
  const { httpUrl } = await openGateway(stack);
  const { status, body } = await call(`${httpUrl}${listPath("0198c0de-0000-7000-8000-000000000000")}`, { user: "bob" });
  expect([status, body.detail]).toEqual([404, "list_id: the users service has no lists"]);
});

pages("what is wrong with a request is said by its status, and names the field", async (stack) => {
  const { httpUrl } = await openGateway(stack);
  const url = httpUrl + timelinePath("home");
  const asked = (query: string) => call(`${url}?${query}`, { user: "cat" });
  expect((await call(url)).status).toBe(401);
  expect((await call(url, { user: "cat", method: "POST" })).status).toBe(405);
  for (const [query, field] of [
    ["limit=0", "limit"],
    ["limit=101", "limit"],
    ["limit=ten", "limit"],
    ["max_id=a&max_id=b", "max_id"],
    [`max_id=${"x".repeat(300)}`, "max_id"],
    ["min_id=a&max_id=b", "min_id"],
    ["max_id=nobody-knows-it", "max_id"],
  ] as const) {
    const refused = await asked(query);
    expect([query, refused.status, fieldsOf(refused)]).toEqual([query, 400, [field]]);
  }
  await stack.redis.zadd(ERASED_KEY, 0, FLOOR_MEMBER, 0, "hal");
  expect((await call(url, { user: "hal" })).status).toBe(410);
  const cookie = { cookie: `access_token=${await tokenOf("cat")}` };
  expect((await call(url, { headers: { ...cookie, origin: "https://evil.example" } })).status).toBe(403);
  const allowed = await call(url, { headers: { ...cookie, origin: APP } });
  expect(allowed.status).toBe(200);
  expect(allowed.headers.get("access-control-allow-origin")).toBe(APP);
  expect(allowed.headers.get("access-control-expose-headers")).toContain("Link");
  expect((await call(`${httpUrl}/api/v1/timelines/nothing`, { user: "cat" })).status).toBe(404);
});

pages("a caller who reads too much waits, and others do not", async (stack) => {
  const { httpUrl } = await openGateway(stack);
  const read = (user: string) => call(httpUrl + timelinePath("local"), { user });
  const answers = await Promise.all(Array.from({ length: 150 }, () => read("dan")));
  const refused = answers.find(({ status }) => status === 429);
  expect(Number(refused?.headers.get("retry-after"))).toBeGreaterThan(0);
  expect((await read("eve")).status).toBe(200);
});

pages("while the role api is away pages are 503; then they are back", async (stack) => {
  const api = await stack.start({ roles: "api" });
  const { httpUrl } = await openGateway(stack, api.grpcAddress);
  const read = (path: string) => call(httpUrl + path, { user: "fay" });
  expect((await read(timelinePath("home"))).status).toBe(200);
  await api.stop();
  const refused = await read(timelinePath("home"));
  expect([refused.status, Number(refused.headers.get("retry-after")) > 0]).toEqual([503, true]);
  expect(JSON.stringify(refused.body)).not.toContain(api.grpcAddress);
  expect((await read("/openapi.json")).body.paths[timelinePath("home")]).toBeDefined();
  await stack.start({ roles: "api", env: { TIMELINE_GRPC_ADDR: api.grpcAddress } });
  await becomes(async () => expect((await read(timelinePath("home"))).status).toBe(200));
});

pages("a gateway that knows no role api serves no pages, and does not describe any", async (stack) => {
  const { httpUrl } = await stack.start({ roles: "gateway" });
  expect((await fetch(httpUrl + timelinePath("home"))).status).toBe(404);
  expect((await call(`${httpUrl}/openapi.json`)).body.paths[timelinePath("home")]).toBeUndefined();
});
