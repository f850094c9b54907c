import { expect, test } from "@jest/globals";
import { UpstreamView } from "../../../src/consistency/upstreams.grpc.js";
import type { Upstreams } from "../../../src/upstreams/upstreams.grpc.js";

const NOW = 1_770_000_000_000;

async function followsOf(changed_at: number): Promise<unknown[]> {
  const edge = { follower_id: "bob", following_id: "ada", version: 3, following: true, changed_at };
  const upstreams = {
    changedDrops: async () => ({ drops: [], next: "" }),
    changedEdges: async () => ({ changes: [edge], next: "" }),
    changedRelations: async () => ({ changes: [], next: "" }),
    changedStandings: async () => ({ entries: [], next: "" }),
  } as unknown as Upstreams;
  const found: unknown[] = [];
  const view = new UpstreamView(upstreams);
  for await (const event of view.readChanges({ since: 0, until: NOW }, () => undefined)) found.push(event);
  return found;
}

test.each([
  ["is as old as the upstream says", NOW - 9_000_000, { created_at: NOW - 9_000_000 }],
  ["without a time has none", 0, {}],
  ["with a time in seconds has none, and is not lost", NOW / 1_000, {}],
])("a follow that an upstream lists %s", async (_, changed_at, dated) => {
  const payload = { follower_id: "bob", following_id: "ada", version: 3, ...dated };
  expect(await followsOf(changed_at)).toEqual([{ name: "user_followed", payload }]);
});
