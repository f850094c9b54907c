import { rm } from "node:fs/promises";
import { credentials, status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { timelinePath } from "../../src/contracts/timeline-pages.js";
import { PostServiceClient, PostServiceService, Visibility } from "../../src/gen/avion/posts.js";
import { mapLimited } from "../../src/kernel/concurrency.js";
import { call } from "../support/analysis-http.js";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { becomes } from "../support/eventually.js";
import { callsOf } from "../support/grpc.js";
import { sharedStack, testWithStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";

const MAX_TEXT = 5_000;
/** Of some 100 KB each: 5 MB. */
const MANY = 50;
const NOTE = "https://far.example/notes/1";
const EVE = "https://far.example/users/eve";

interface Item {
  readonly drop_id: string;
  readonly drop?: ReturnType<typeof JSON.parse>;
}

const itemsOf = ({ body }: { readonly body: { readonly items: Item[] } }): Item[] => body.items;

testWithStack(
  "a page has its drops as GetDrops gives them to its reader, with their states, also more than a message takes",
  { service: false, timeoutMs: 120_000 },
  async (stack) => {
    const folder = await temporaryFolder("data");
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const { httpUrl, grpcAddress } = await stack.start({
      roles: "users,posts,bridge,fanout,api,gateway",
      env: { TIMELINE_DATA_DIR: folder, TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" },
    });
    const api = openApi(grpcAddress);
    stack.defer(() => api.close());
    const client = new PostServiceClient(grpcAddress, credentials.createInsecure());
    stack.defer(() => client.close());
    const { getDrops } = callsOf(client, PostServiceService);
    for (const following_id of ["ada", EVE]) await api.follow({ follower_id: "fay", following_id });
    const read = (query = "") => call(`${httpUrl}${timelinePath("home")}?expand=drops${query}`, { user: "fay" });

    const open = await api.post("bob", { body: "Hello" });
    const { repost_id } = await api.share({ drop_id: open.drop_id, user_id: "ada" });
    await api.like({ drop_id: open.drop_id, user_id: "fay" });
    const followers = await api.post("ada", { visibility: Visibility.FOLLOWERS, extra: { mood: "good" } });
    await api.putRemote({ uri: NOTE, actor_uri: EVE, document: '{"content":"far"}' });
    const wanted = [NOTE, followers.drop_id, repost_id];
    await becomes(async () => expect(itemsOf(await read()).map(({ drop_id }) => drop_id)).toEqual(wanted));
    await becomes(async () => expect(itemsOf(await read())[2]?.drop.counts).toMatchObject({ likes: 1, shares: 1 }));
    const page = await read();
    expect([page.status, page.body.degraded]).toEqual([200, false]);
    const { results } = await getDrops({ drop_ids: wanted, viewer_id: "fay", with_state: true });
    const names = { visibility: "VISIBILITY_PUBLIC" };
    expect(itemsOf(page).map(({ drop }) => drop)).toMatchObject(
      [
        {
          ...results[0],
          remote: { ...results[0]?.remote, ...names, kind: "REMOTE_KIND_DROP" },
          viewer: { liked: false },
        },
        { ...results[1], drop: { ...results[1]?.drop, visibility: "VISIBILITY_FOLLOWERS", extra: { mood: "good" } } },
        {
          ...{ drop: { repost_of: open.drop_id, original: { body: "Hello", ...names } }, viewer: { liked: true } },
          counts: { drop_id: open.drop_id },
        },
      ].map((item) => JSON.parse(JSON.stringify(item))),
    );

    const [url, description] = [`https://files.example/${"x".repeat(2_000)}`, "😀".repeat(1_500)];
    const attachments = Array.from({ length: 8 }, () => ({ url, description, media_type: "", width: 0, height: 0 }));
    const text = "😀".repeat(MAX_TEXT - 3);
    const extra = { text: "x".repeat(16_000) };
    const numbers = Array.from({ length: MANY }, (_, number) => number);
    await mapLimited(numbers, 10, (number) => api.post("ada", { body: `${text}${number}`, attachments, extra }));
    await becomes(async () => {
      const { body } = await read(`&limit=${MANY}`);
      expect(itemsOf({ body }).map(({ drop }) => drop?.drop.attachments.length)).toEqual(Array(MANY).fill(8));
      expect(body.degraded).toBe(false);
    });
  },
);

const pages = sharedStack({ roles: "bridge,fanout,api,gateway" });

pages("the page stays where the posts service fails, hangs or has no GetDrops", async (stack) => {
  const [drop, reader] = [
    { drop_id: "d1", user_id: "gus", created_at: Date.now(), visibility: "public" as const },
    "hal",
  ];
  stack.world.follow(reader, "gus");
  stack.world.post(drop);
  await stack.publish(created(drop));
  const { httpUrl } = stack.service;
  const read = (query = "?expand=drops") => call(httpUrl + timelinePath("home") + query, { user: reader });
  await becomes(async () => expect((await read("")).body.drop_ids).toEqual(["d1"]));
  const plain = { drop_id: "d1", created_at: drop.created_at, repost_of: "", reposted_by: [] };
  expect((await read("")).body.items).toEqual([plain]);
  expect(itemsOf(await read())).toMatchObject([{ drop_id: "d1", drop: { drop: { user_id: "gus" } } }]);
  for (const [fault, degraded] of [
    [{ code: status.UNAVAILABLE }, true],
    [{ code: status.INTERNAL }, true],
    [{ delayMs: 60_000 }, true],
    [{ code: status.UNIMPLEMENTED }, false],
  ] as const) {
    const heal = stack.upstreams.inject({ method: "GetDrops", ...fault });
    const { body } = await read();
    expect([fault, body.drop_ids, itemsOf({ body }), body.degraded]).toEqual([...[fault, ["d1"], [plain], degraded]]);
    heal();
  }
  expect((await read()).body.degraded).toBe(false);
});

pages("another value of expand is refused, and named", async (stack) => {
  for (const value of ["x", "", "drops&expand=drops"]) {
    const { status: code, body } = await call(`${stack.service.httpUrl}${timelinePath("local")}?expand=${value}`, {
      user: "ivy",
    });
    expect([value, code, body.errors]).toEqual([value, 400, [{ field: "expand", detail: "must be one of drops" }]]);
  }
});
