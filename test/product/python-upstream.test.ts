import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { credentials, status } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { Visibility } from "../../src/gen/avion/posts.js";
import { UserServiceClient, UserServiceService } from "../../src/gen/avion/users.js";
import { type Api, openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { jsonOf } from "../support/command.js";
import { becomes } from "../support/eventually.js";
import { callsOf } from "../support/grpc.js";
import { openReader } from "../support/reader.js";
import { type Stack, startStack } from "../support/stack.js";
import { runs } from "../support/suite.js";

const PROGRAM = "docs/examples/upstream.py";
const hasLibraries = spawnSync("python3", ["-c", "import grpc, grpc_tools, redis"], { stdio: "ignore" }).status === 0;
if (!hasLibraries) console.warn("Python has no grpcio, grpcio-tools and redis: the example upstream is not run");

/** Starts the program and waits for the port that it prints. */
async function startExample(stack: Stack): Promise<string> {
  const folder = await temporaryFolder("example");
  const args = [PROGRAM, "127.0.0.1:0", stack.redisServer.url, join(folder, "social.db")];
  const child = spawn("python3", args, { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "exit");
  stack.afterServices(async () => {
    child.kill("SIGKILL");
    await ended;
    await rm(folder, { recursive: true, force: true });
  });
  const [line] = (await Promise.race([once(createInterface(child.stdout), "line"), ended])) as [unknown];
  return `127.0.0.1:${/on port (\d+)$/.exec(String(line))?.[1]}`;
}

interface Setting {
  readonly stack: Stack;
  readonly api: Api;
  /** The stack with the addresses of the example, for commands. */
  readonly commands: Pick<Stack, "serviceOptions">;
  start(): ReturnType<Stack["start"]>;
}

async function withExample(work: (setting: Setting) => Promise<void>): Promise<void> {
  const stack = await startStack({ service: false });
  try {
    const address = await startExample(stack);
    const api = openApi(address);
    stack.defer(() => api.close());
    const serviceOptions = { ...stack.serviceOptions, usersAddress: address, postsAddress: address };
    const env = { TIMELINE_USER_SERVICE_ADDR: address, TIMELINE_POST_SERVICE_ADDR: address };
    await work({ stack, api, commands: { serviceOptions }, start: () => stack.start({ env }) });
  } catch (error) {
    throw stack.explain(error);
  } finally {
    await stack.stop();
  }
}

const running = hasLibraries && runs.quick ? test : test.skip;

running("the service runs on the example upstream in Python: events, rebuilds, audits and reconciliation", () =>
  withExample(async ({ stack, api, commands, start }) => {
    const service = await start();
    let reads = openReader(service.grpcAddress);
    stack.defer(() => reads.close());
    const expectHome = (ids: readonly string[]): Promise<void> =>
      becomes(async () => {
        const page = await reads.home("ada");
        expect({ ids: page.drop_ids, degraded: page.degraded }).toEqual({ ids, degraded: false });
      });

    expect(await api.follow({ follower_id: "ada", following_id: "grace" })).toMatchObject({
      changed: true,
      version: 1,
    });
    const first = await api.post("grace");
    await expectHome([first.drop_id]);
    const second = await api.post("grace", { visibility: Visibility.FOLLOWERS });
    await expectHome([second.drop_id, first.drop_id]);
    expect((await reads.local()).drop_ids).toEqual([first.drop_id]);

    await stack.redis.flushall();
    await expectHome([second.drop_id, first.drop_id]);
    await api.deleteDrop({ drop_id: first.drop_id, user_id: "grace" });
    await expectHome([second.drop_id]);
    expect((await api.dropsOf({ user_id: "grace" })).drops).toMatchObject([{ drop_id: second.drop_id }]);

    const ofJoan = await api.post("joan");
    await becomes(async () => expect((await reads.local()).drop_ids).toContain(ofJoan.drop_id));
    // Nobody listens: these are in the example's database alone.
    await service.crash();
    const unheard = await api.post("grace");
    await api.follow({ follower_id: "ada", following_id: "joan" });
    const restarted = await start();
    reads.close();
    reads = openReader(restarted.grpcAddress);
    await expectHome([unheard.drop_id, ofJoan.drop_id, second.drop_id]);

    await api.unfollow({ follower_id: "ada", following_id: "grace" });
    await expectHome([ofJoan.drop_id]);
    const settled = { env: { TIMELINE_AUDIT_SETTLE_MS: "0" } };
    const report = await jsonOf<object>(commands, ["audit", "--user", "ada"], settled);
    expect(report).toMatchObject({ users: 1, differ: 0, incomplete: 0, undecided: [], failed: [] });
    expect(await stack.streams.count("DLQ")).toBe(0);
  }),
);

running("pages of the example upstream follow each other without gaps", () =>
  withExample(async ({ api }) => {
    for (const follower_id of ["ada", "joan", "mary"]) await api.follow({ follower_id, following_id: "grace" });
    const users = await api.followers({ user_id: "grace", page_size: 2 });
    expect(users).toMatchObject({ user_ids: ["ada", "joan"], total_count: 3 });
    const rest = await api.followers({ user_id: "grace", page_size: 2, page_token: users.next_page_token });
    expect(rest).toMatchObject({ user_ids: ["mary"], next_page_token: "" });

    const ids: string[] = [];
    for (let made = 0; made < 3; made++) ids.unshift((await api.post("grace")).drop_id);
    ids.sort().reverse();
    const newest = await api.dropsOf({ user_id: "grace", limit: 2 });
    expect([newest.drops.map(({ drop_id }) => drop_id), newest.end]).toEqual([ids.slice(0, 2), false]);
    const oldest = await api.dropsOf({ user_id: "grace", limit: 2, max_id: ids[1] });
    expect([oldest.drops.map(({ drop_id }) => drop_id), oldest.end]).toEqual([ids.slice(2), true]);
    const unknown = api.dropsOf({ user_id: "grace", max_id: "no such drop" });
    await expect(unknown).rejects.toMatchObject({ code: status.INVALID_ARGUMENT });
    const direct = api.post("grace", { visibility: Visibility.DIRECT });
    await expect(direct).rejects.toMatchObject({ code: status.INVALID_ARGUMENT });
  }),
);

running("a reply on the example upstream names its parent, the parent's author and whom it mentions", () =>
  withExample(async ({ stack, api, start }) => {
    await start();
    const parent = await api.post("grace");
    const names = { reply_to: parent.drop_id, mentions: ["ada", "joan"] };
    const reply = await api.post("mary", names);
    const named = { drop_id: reply.drop_id, ...names, reply_to_author: "grace" };
    expect((await api.dropsOf({ user_id: "mary" })).drops).toMatchObject([named]);
    await becomes(async () => {
      const events = (await stack.streams.all("DROPS")).map(({ body }) => JSON.parse(String(body)));
      expect(events).toContainEqual(expect.objectContaining({ user_id: "mary", visibility: "public", ...named }));
    });
    const unknown = await api.post("mary", { reply_to: "https://far.example/notes/1" });
    const [newest] = (await api.dropsOf({ user_id: "mary", limit: 1 })).drops;
    expect(newest).toMatchObject({ drop_id: unknown.drop_id, reply_to: unknown.reply_to, reply_to_author: "" });
  }),
);

running("the example upstream lists what changed since a time, what has ended and is deleted too", () =>
  withExample(async ({ api, commands: { serviceOptions } }) => {
    const client = new UserServiceClient(serviceOptions.usersAddress, credentials.createInsecure());
    const { listFollowChanges } = callsOf(client, UserServiceService);
    const since = Date.now();
    for (const following_id of ["grace", "joan", "mary"]) await api.follow({ follower_id: "ada", following_id });
    await api.unfollow({ follower_id: "ada", following_id: "grace" });
    const window = { since, until: 0, page_size: 2, page_token: "" };
    const first = await listFollowChanges(window);
    const rest = await listFollowChanges({ ...window, page_token: first.next_page_token });
    expect(rest.next_page_token).toBe("");
    const changes = [...first.changes, ...rest.changes].map((one) => [one.following_id, one.following, one.version]);
    const wanted = [
      ["grace", false, 2],
      ["joan", true, 1],
      ["mary", true, 1],
    ];
    expect([changes.length, changes]).toEqual([wanted.length, expect.arrayContaining(wanted)]);
    expect((await listFollowChanges({ ...window, until: since })).changes).toEqual([]);
    client.close();
  }),
);

test("the example upstream fits on a page and starts as its first lines say", () => {
  const text = readFileSync(PROGRAM, "utf8");
  expect(text.split("\n").length).toBeLessThan(200);
  expect(text).toContain(`python3 ${PROGRAM}`);
  expect(readFileSync("docs/integration.md", "utf8")).toContain("](examples/upstream.py)");
});
