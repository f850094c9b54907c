import { rm } from "node:fs/promises";
import { expect, test } from "@jest/globals";
import { Visibility } from "../../src/gen/avion/posts.js";
import { DAY } from "../../src/kernel/time.js";
import { monthOf } from "../../src/posts/drops/ids.js";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { jsonOf } from "../support/command.js";
import { becomes } from "../support/eventually.js";
import { openReader, pagesDown, type Read, type Reader } from "../support/reader.js";
import { startStack } from "../support/stack.js";

const EVE = "https://far.example/users/eve";
const KEPT_DAYS = 40;

/** All drops of a timeline, turned page by page from the top. */
async function allOf(read: Read): Promise<string[]> {
  const pages = await pagesDown(read, { limit: 3 });
  expect(pages.filter(({ degraded }) => degraded)).toEqual([]);
  return pages.flatMap(({ drop_ids }) => drop_ids).sort();
}

// Invariant 4.
test("a month that is dropped leaves home, local and global, and an audit finds nothing wrong", async () => {
  const stack = await startStack({ service: false });
  try {
    const folder = await temporaryFolder("data");
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const roles = "users,posts,bridge,fanout,api";
    const own = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "", TIMELINE_DATA_DIR: folder };
    const before = await stack.start({ roles, env: own });
    const api = openApi(before.grpcAddress);
    stack.defer(() => api.close());
    for (const following_id of ["bob", EVE]) await api.follow({ follower_id: "ada", following_id });
    await becomes(async () => {
      for (const user_id of ["bob", EVE])
        expect((await api.followers({ user_id, page_size: 0, page_token: "" })).total_count).toBe(1);
    });

    // The month that goes ends here: one drop is its last, another the first of the next.
    const edge = monthOf(Date.now() - KEPT_DAYS * DAY).start;
    const gone: string[] = [];
    const kept: string[] = [];
    const uriOf = (at: number) => `https://far.example/notes/${at}`;
    for (const created_at of [edge - 60 * DAY, edge - DAY, edge - 2, edge - 1, edge, edge + 1, edge + DAY]) {
      const ids = created_at < edge ? gone : kept;
      ids.unshift((await api.post("bob", { created_at })).drop_id);
      await api.putRemote({ uri: uriOf(created_at), actor_uri: EVE, created_at });
      ids.unshift(uriOf(created_at));
    }
    const young = await api.post("bob", { visibility: Visibility.FOLLOWERS });
    const reads = openReader(before.grpcAddress);
    stack.defer(() => reads.close());
    const pages = async ({ home, local, global }: Reader) => ({
      home: await allOf((query) => home("ada", query)),
      local: await allOf(local),
      global: await allOf(global),
    });
    const isOwn = (id: string): boolean => !id.startsWith("https:");
    const shown = (ids: readonly string[]) => ({
      home: [...ids, young.drop_id].sort(),
      local: ids.filter(isOwn).sort(),
      global: [...ids].sort(),
    });
    await becomes(async () => expect(await pages(reads)).toEqual(shown([...kept, ...gone])));
    const middle = await reads.local({ limit: 4 });
    expect((await before.stop()).code).toBe(0);

    const service = await stack.start({
      roles,
      env: { ...own, TIMELINE_DROPS_RETENTION_DAYS: String(KEPT_DAYS) },
    });
    const after = openReader(service.grpcAddress);
    stack.defer(() => after.close());
    await becomes(async () => expect(await pages(after)).toEqual(shown(kept)), 40_000);
    expect(await after.local({ max_id: middle.next_max_id })).toMatchObject({ drop_ids: [], has_more: false });
    await becomes(async () => {
      for (const key of ["timeline:home:ada", "timeline:local", "timeline:global"])
        expect(await stack.redis.zcount(key, 1, edge - 1)).toBe(0);
    }, 40_000);

    // A rebuild does not bring back those that the log still holds.
    await stack.redis.flushall();
    await becomes(async () => expect(await pages(after)).toEqual(shown(kept)), 20_000);
    const env = {
      ...{ TIMELINE_USER_SERVICE_ADDR: service.grpcAddress, TIMELINE_POST_SERVICE_ADDR: service.grpcAddress },
      TIMELINE_AUDIT_SETTLE_MS: "300",
    };
    expect(await jsonOf(stack, ["audit", "--user", "ada"], { env })).toMatchObject({ users: 1, differ: 0 });
    for (const key of ["timeline:home:ada", "timeline:local", "timeline:global"])
      await stack.redis.zadd(key, edge - 1, gone[0] as string);
    expect(await jsonOf(stack, ["audit"], { env })).toMatchObject({ users: 1, differ: 0 });
    expect(await pages(after)).toEqual(shown(kept));
    expect(await stack.streams.count("DLQ")).toBe(0);
  } catch (error) {
    throw stack.explain(error);
  } finally {
    await stack.stop();
  }
}, 180_000);
