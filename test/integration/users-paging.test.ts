import { expect, test } from "@jest/globals";
import type { TracedEdge } from "../../src/users/edges.js";
import { createEdgeStore } from "../../src/users/edges.sql.js";
import { describeUsers } from "../support/describe-users.js";
import { below, oneOf, seeded, shuffled } from "../support/random.js";
import { relayAll, wholeList } from "../support/users.js";

const idOf = (n: number): string => `u${String(n).padStart(6, "0")}`;

describeUsers("long lists", {}, ({ db, users, client }) => {
  let version = 1;

  /** Applies edges and publishes what that wrote. */
  const apply = async (edges: readonly Omit<TracedEdge, "version">[]): Promise<void> => {
    version += 1;
    await createEdgeStore(db).apply(edges.map((edge) => ({ ...edge, version })));
    await relayAll({ db, prepare: users.prepare }, async () => undefined);
  };
  const followers = (following_id: string, from: number, to: number) =>
    Array.from({ length: to - from }, (_, n) => ({ follower_id: idOf(from + n), following_id, following: true }));

  test("20,000 followers are paged, each once and in the order of their bytes", async () => {
    for (let from = 0; from < 20_000; from += 2_000) {
      version += 1;
      await createEdgeStore(db).apply(followers("star", from, from + 2_000).map((edge) => ({ ...edge, version })));
    }
    await db.run("DELETE FROM public.outbox");
    const all = Array.from({ length: 20_000 }, (_, n) => idOf(n));
    const first = await client.getFollowersList({ user_id: "star" });
    expect([first.user_ids.length, first.total_count]).toEqual([1_000, 20_000]);
    expect((await client.getFollowersList({ user_id: "star", page_size: 100_000 })).user_ids).toHaveLength(5_000);
    expect(await wholeList(client.getFollowersList, "star")).toEqual(all);
    expect(await wholeList(client.getFollowersList, "star", 5_000)).toEqual(all);
    expect(await wholeList(client.getFollowersList, "star", 3_333)).toEqual(all);
  });

  test.each([
    ["remembered", 600],
    ["too long to be remembered", 6_000],
  ])("a list %s: who stays is on exactly one page, whatever is inserted and removed", async (what, count) => {
    const random = seeded(count);
    const user = `changing ${what}`;
    const even = followers(user, 0, count).filter((_, n) => n % 2 === 0);
    await apply(even);
    const staying = new Set(even.map(({ follower_id }) => follower_id));
    const change = async (): Promise<void> => {
      const leaving = oneOf(random, [...staying]);
      staying.delete(leaving);
      const coming = Array.from({ length: 20 }, () => idOf(below(random, count / 2) * 2 + 1));
      const edges = [...new Set(coming)].map((follower_id) => ({
        follower_id,
        following_id: user,
        following: random() < 0.7,
      }));
      await apply(shuffled(random, [...edges, { follower_id: leaving, following_id: user, following: false }]));
    };
    for (let round = 0; round < 3; round++) {
      const seen = await wholeList(client.getFollowersList, user, Math.ceil(count / 17), change);
      expect(new Set(seen).size).toBe(seen.length);
      expect(seen).toEqual([...seen].sort());
      expect([...staying].filter((id) => !seen.includes(id))).toEqual([]);
    }
  });

  test("a page that ends with the list has no token", async () => {
    await apply(followers("exact", 0, 10));
    const page = await client.getFollowersList({ user_id: "exact", page_size: 10 });
    expect([page.user_ids.length, page.next_page_token]).toEqual([10, ""]);
    const half = await client.getFollowersList({ user_id: "exact", page_size: 5 });
    const rest = await client.getFollowersList({ user_id: "exact", page_size: 5, page_token: half.next_page_token });
    expect([rest.user_ids.length, rest.next_page_token, rest.total_count]).toEqual([5, "", 10]);
  });
});
