import { status } from "@grpc/grpc-js";
import { beforeEach, expect, test } from "@jest/globals";
import { DAY, HOUR, MINUTE } from "../../src/kernel/time.js";
import { createReadShared } from "../../src/reads/shared.nats.js";
import { createListDrops } from "../../src/reads/sources.grpc.js";
import { connectUpstreams } from "../../src/upstreams/upstreams.grpc.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { NOBODY_ERASED } from "../support/redis.js";
import { startUpstreams, type UpstreamOptions } from "../support/upstreams.js";
import { World, type WorldDrop } from "../support/world.js";

const nats = natsOfFile();
let ids = 0;
beforeEach(() =>
  nats.manager.streams.delete("DROPS").then(() => nats.manager.streams.add({ name: "DROPS", subjects: ["drops.*"] })),
);

const dead = new Set<string>();
const put = (subject: string, body: object) =>
  nats.publish({ subject, body: Buffer.from(JSON.stringify(body)), id: `s${ids++}` });

async function open(
  maxEntries: number,
  options: UpstreamOptions = {},
  of: { remoteCap?: number; oldest?: number } = {},
) {
  const world = new World();
  const upstreams = await startUpstreams(world, options);
  const client = connectUpstreams({
    ...{ userServiceAddr: upstreams.usersAddress, postServiceAddr: upstreams.postsAddress },
    tls: {},
  });
  const read = createReadShared({
    ...{
      connection: nats.connection,
      erased: NOBODY_ERASED,
      maxEntries,
      remoteCap: of.remoteCap,
      judgesReplies: false,
    },
    tombstonedAmong: async (drops) => new Set(drops.filter((id) => dead.has(id))),
    list: createListDrops(client),
    retentionStart: () => of.oldest ?? 0,
  });
  const post = (drop_id: string, created_at: number, more: Partial<WorldDrop> = {}, changed = created_at): void => {
    world.post({ drop_id, user_id: "ada", created_at, ...more });
    world.touch(drop_id, changed);
  };
  const close = async (): Promise<void> => {
    client.close();
    await upstreams.stop();
  };
  return { world, upstreams, read, post, close };
}

const idsOf = ({ entries }: { entries: readonly { drop: string }[] }): string[] => entries.map(({ drop }) => drop);

// Invariant 5.
test("a new log beside a posts service: local has its newest drops as far back as it goes, without those that do not belong", async () => {
  const { world, read, post, close } = await open(10);
  const now = Date.now();
  post("years ago", now - 900 * DAY);
  post("last week", now - 9 * DAY);
  post("edited", now - 30 * DAY, {}, now - MINUTE);
  for (const visibility of ["unlisted", "followers", "direct"] as const) post(visibility, now - HOUR, { visibility });
  post("repost", now - HOUR, { repost_of: "edited", repost_author: "ada" });
  post("gone", now - 2 * HOUR);
  world.remove("gone");
  post("tombstoned", now - 2 * HOUR);
  post("another server's", now - HOUR);
  dead.add("tombstoned");
  await put("drops.ap_received", { drop_id: "another server's", created_at: now - HOUR });
  await put("drops.ap_received", { drop_id: "remote", user_id: "rita", created_at: now - 2 * DAY });
  await put("drops.created", {
    drop_id: "only logged",
    user_id: "ada",
    visibility: "public",
    created_at: now - 3 * DAY,
  });
  const local = await read("local");
  expect([idsOf(local), local.floor]).toEqual([["only logged", "last week", "edited", "years ago"], 0]);
  const global = await read("global");
  expect(idsOf(global)).toEqual(["another server's", "remote", "only logged", "last week", "edited", "years ago"]);
  expect(global.entries.find(({ drop }) => drop === "remote")).toMatchObject({ by: { author: "rita" }, remote: true });
  dead.clear();
  await close();
});

// Invariant 5.
test("a full local is complete down to its floor, and neither older drops nor a log that is just filled cost a read", async () => {
  const { upstreams, read, post, close } = await open(50);
  const now = Date.now();
  for (let number = 0; number < 2_000; number++) post(`d${number}`, now - number * 10 * MINUTE);
  const { entries, floor } = await read("local");
  expect(entries).toHaveLength(50);
  expect(idsOf({ entries })).toEqual(Array.from({ length: 50 }, (_, number) => `d${number}`));
  expect([floor, floor <= (entries.at(-1)?.score ?? 0)]).toEqual([now - 500 * MINUTE, true]);
  expect(upstreams.calls("ListDrops")).toBeLessThan(8);
  await close();
});

test("remote drops take their share of global beside the drops that are listed", async () => {
  const { read, post, close } = await open(4, {}, { remoteCap: 2 });
  const now = Date.now();
  for (const minutes of [1, 3, 5]) post(`own-${minutes}`, now - minutes * MINUTE);
  for (const minutes of [2, 4, 6, 8])
    await put("drops.ap_received", { drop_id: `remote-${minutes}`, created_at: now - minutes * MINUTE });
  const { remoteFloor, ...rest } = await read("global");
  expect([idsOf(rest), remoteFloor]).toEqual([["own-1", "remote-2", "own-3", "remote-4"], now - 6 * MINUTE]);
  await close();
});

test("an upstream without ListDrops leaves local to the log", async () => {
  const { read, post, close } = await open(4, { reconciliation: false });
  const now = Date.now();
  post("unlisted by it", now - HOUR);
  await put("drops.created", { drop_id: "logged", user_id: "ada", visibility: "public", created_at: now - HOUR });
  expect(idsOf(await read("local"))).toEqual(["logged"]);
  await close();
});

// Invariant 5.
test("while the posts service is unavailable, the log alone fills local", async () => {
  const { upstreams, read, close } = await open(4);
  upstreams.inject({ method: "ListDrops", code: status.UNAVAILABLE });
  const newest = { drop_id: "logged meanwhile", user_id: "ada", visibility: "public", created_at: Date.now() };
  await put("drops.created", newest);
  expect(idsOf(await read("local"))[0]).toBe(newest.drop_id);
  await close();
});
