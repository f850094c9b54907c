import { expect, test } from "@jest/globals";
import type { CreateDropRequest, DropDetails } from "../../../../src/gen/avion/posts.js";
import { Visibility } from "../../../../src/gen/avion/posts.js";
import { BIG_AUTHOR, planWorld, type SeedOptions, seedWorld } from "../../../../src/sandbox/world/seed.js";

const NOW = 1_750_000_000_000;
const plan = (options: Partial<SeedOptions> = {}) => planWorld({ bigAuthorFollowers: 500, now: NOW, ...options });

test("the same seed makes the same plan, another one another", () => {
  expect(plan({ seed: 7 })).toEqual(plan({ seed: 7 }));
  expect(plan({ seed: 7 })).not.toEqual(plan({ seed: 8 }));
});

test("the tail is long: a few are followed by many, most by few", () => {
  const followers = new Map<string, number>();
  for (const { following_id } of plan({ users: 120 }).follows)
    followers.set(following_id, (followers.get(following_id) ?? 0) + 1);
  followers.delete(BIG_AUTHOR);
  const counts = [...followers.values()].sort((a, b) => b - a);
  const sum = (list: number[]) => list.reduce((a, b) => a + b, 0);
  expect(sum(counts.slice(0, 30))).toBeGreaterThan(sum(counts) * 0.4);
  expect(counts[100] ?? 0).toBeLessThan((counts[0] as number) / 10);
});

test("the big author has exactly the followers asked for, ids are readable, nobody follows themselves or twice", () => {
  const { people, follows } = plan({ users: 120 });
  expect(follows.filter(({ following_id }) => following_id === BIG_AUTHOR)).toHaveLength(500);
  for (const id of ["ada", "grace", "user-0110"]) expect(people).toContain(id);
  expect(follows.every(({ follower_id, following_id }) => follower_id !== following_id)).toBe(true);
  expect(new Set(follows.map((pair) => JSON.stringify(pair))).size).toBe(follows.length);
});

test("history is in the past, oldest first, and has all visibilities", () => {
  const { drops } = plan();
  const times = drops.map(({ created_at }) => created_at);
  expect(Math.max(...times)).toBeLessThan(NOW);
  expect(times).toEqual([...times].sort((a, b) => a - b));
  expect(new Set(drops.map(({ visibility }) => visibility)).size).toBe(4);
  const addressed = drops.filter(({ recipients }) => recipients.length > 0);
  expect(addressed.every(({ visibility }) => visibility === Visibility.DIRECT)).toBe(true);
});

test("a plan is made true as it stands: people first, follows last and in bounded calls, and progress is told", async () => {
  const wanted = plan({ bigAuthorFollowers: 2_500 });
  const seen = { people: 0, drops: [] as Partial<CreateDropRequest>[], reactions: 0, follows: [] as object[] };
  const planned = wanted.reactions.map(({ user_id, drop, kind }) => ({ drop_id: drop.body, user_id, kind }));
  const told = new Map<string, number[]>();
  const users = {
    setProfile: async () => {
      seen.people++;
      return { profile: undefined };
    },
    followMany: async ({ follows = [] }: { follows?: object[] } = {}) => {
      expect(seen.drops).toHaveLength(wanted.drops.length);
      expect(follows.length).toBeLessThanOrEqual(1_000);
      seen.follows.push(...follows);
      return { changed: follows.length, pending: 0 };
    },
  };
  const reactedTo = (reaction: object, kind: string) => {
    expect(planned).toContainEqual({ ...reaction, kind });
    seen.reactions++;
    return { changed: true };
  };
  const posts = {
    createDrop: async (draft: Partial<CreateDropRequest> = {}) => {
      expect(seen.people).toBe(wanted.people.length);
      seen.drops.push(draft);
      return { drop: { drop_id: draft.body } as DropDetails };
    },
    likeDrop: async (reaction: object = {}) => reactedTo(reaction, "like"),
    shareDrop: async (reaction: object = {}) => ({ ...reactedTo(reaction, "share"), repost_id: "" }),
  };
  await seedWorld({ users, posts }, wanted, (what, done, total) =>
    told.set(what, [...(told.get(what) ?? []), done / total]),
  );
  expect(seen.follows).toEqual(wanted.follows);
  expect(seen.reactions).toBe(wanted.people.length * 2);
  // A call that is repeated makes no second drop.
  const keyed = wanted.drops.map((drop) => ({ ...drop, idempotency_key: drop.body }));
  expect(new Set(seen.drops)).toEqual(new Set(keyed));
  expect(new Set(keyed.map(({ idempotency_key }) => idempotency_key)).size).toBe(wanted.drops.length);
  expect([...told.keys()]).toEqual(["users", "drops", "follows"]);
  for (const shares of told.values()) expect(shares.at(-1)).toBe(1);
});
