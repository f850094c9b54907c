import { expect, test } from "@jest/globals";
import { World } from "../../../src/world/world.js";

const user = (index: number) => `u${index}`;

function followersByPages(world: World, betweenPages: () => void = () => undefined): string[] {
  const seen: string[] = [];
  let page_token = "";
  do {
    const page = world.followersOf("star", { page_size: 7, page_token });
    seen.push(...page.items);
    page_token = page.next_page_token;
    betweenPages();
  } while (page_token !== "" && seen.length < 10_000);
  return seen;
}

test("pages give every follower once, in both directions", () => {
  const world = new World();
  for (let index = 0; index < 50; index++) world.follow(user(index), "star");
  expect(followersByPages(world)).toEqual(Array.from({ length: 50 }, (_, index) => user(index)));
  expect(world.followingOf("u3").items).toEqual(["star"]);
  expect(world.followersOf("star").total_count).toBe(50);
});

test("paging under change gives everybody who stayed exactly once", () => {
  const world = new World();
  for (let index = 0; index < 200; index++) world.follow(user(index), "star");
  let turn = 0;
  const seen = followersByPages(world, () => {
    turn++;
    // Those given already, those to come, one who leaves and returns, newcomers.
    world.unfollow(user(turn * 3), "star");
    world.unfollow(user(199 - turn * 3), "star");
    world.unfollow("u100", "star");
    world.follow("u100", "star");
    if (turn < 10) world.follow(`new${turn}`, "star");
  });
  const left = new Set(world.followersOf("star", { page_size: 5_000 }).items);
  const stayed = Array.from({ length: 200 }, (_, index) => user(index)).filter((id) => left.has(id) && id !== "u100");
  expect(stayed.length).toBeGreaterThan(50);
  for (const id of stayed) expect(seen.filter((other) => other === id)).toEqual([id]);
});

test("sizes: 0 is 1000, at most 5000, negative is refused by name", () => {
  const world = new World();
  for (let index = 0; index < 5_100; index++) world.follow(user(index), "star");
  expect(world.followersOf("star", { page_size: 0 }).items).toHaveLength(1_000);
  expect(world.followersOf("star", { page_size: 9_999 }).items).toHaveLength(5_000);
  expect(() => world.followersOf("star", { page_size: -1 })).toThrow(/page_size/);
  expect(world.followersOf("nobody")).toEqual({ items: [], next_page_token: "", total_count: 0 });
});

test("an exact last page has no token", () => {
  const world = new World();
  for (let index = 0; index < 4; index++) world.follow(user(index), "star");
  const first = world.followersOf("star", { page_size: 2 });
  expect(first.next_page_token).not.toBe("");
  const last = world.followersOf("star", { page_size: 2, page_token: first.next_page_token });
  expect(last).toMatchObject({ items: ["u2", "u3"], next_page_token: "" });
});

test("tokens are refused by name unless this very list gave them", () => {
  const world = new World();
  for (const star of ["star", "moon"]) for (let index = 0; index < 4; index++) world.follow(user(index), star);
  const token = world.followersOf("star", { page_size: 2 }).next_page_token;
  for (const bad of ["x", "nonsense", `${token}A`, token.slice(1), Buffer.from("1").toString("base64url")]) {
    expect(() => world.followersOf("star", { page_token: bad })).toThrow(/page_token/);
  }
  expect(() => world.followersOf("moon", { page_token: token })).toThrow(/page_token/);
  expect(() => world.followingOf("star", { page_token: token })).toThrow(/page_token/);
  expect(() => world.followersOf("nobody", { page_token: token })).toThrow(/page_token/);
});

test("versions grow per pair, also while the clock stands or steps back", () => {
  const times = [1_000, 1_000, 900, 2_000];
  const world = new World({ now: () => times.shift() ?? 2_000 });
  const versions = [
    world.follow("a", "b")?.version,
    world.unfollow("a", "b")?.version,
    world.follow("a", "b")?.version,
    world.unfollow("a", "b")?.version,
  ] as number[];
  expect(versions).toEqual([...new Set(versions)].sort((x, y) => x - y));
  expect(versions).toHaveLength(4);
});

test("no change: following twice, leaving whom one does not follow; oneself is refused", () => {
  const world = new World();
  expect(world.unfollow("a", "b")).toBeUndefined();
  expect(world.follow("a", "b")).toMatchObject({ following: true });
  expect(world.follow("a", "b")).toBeUndefined();
  expect(() => world.follow("a", "a")).toThrow(/following_id/);
  expect(world.followersOf("b").items).toEqual(["a"]);
});

test("follow changes: by window, the last change of a pair only, in pages", () => {
  let now = 100;
  const world = new World({ now: () => now });
  for (let index = 0; index < 5; index++) world.follow(user(index), "star");
  now = 200;
  world.unfollow("u1", "star");
  expect(world.listFollowChanges({ since: 100, until: 200 }).items.map((edge) => edge.follower_id)).toEqual([
    "u0",
    "u2",
    "u3",
    "u4",
  ]);
  expect(world.listFollowChanges({ since: 101 }).items).toMatchObject([
    { follower_id: "u1", following: false, changed_at: 200 },
  ]);
  const seen: string[] = [];
  let page_token = "";
  do {
    const page = world.listFollowChanges({ page_size: 2, page_token });
    seen.push(...page.items.map((edge) => edge.follower_id));
    page_token = page.next_page_token;
  } while (page_token !== "");
  expect(seen).toEqual(["u0", "u2", "u3", "u4", "u1"]);
  expect(() => world.listFollowChanges({ since: -1 })).toThrow(/since/);
});

test("an author with 50,000 followers is paged through quickly", () => {
  const world = new World();
  for (let index = 0; index < 50_000; index++) world.follow(user(index), "star");
  const start = performance.now();
  const seen = new Set<string>();
  let page_token = "";
  do {
    const page = world.followersOf("star", { page_token });
    for (const id of page.items) seen.add(id);
    page_token = page.next_page_token;
  } while (page_token !== "");
  expect(seen.size).toBe(50_000);
  expect(performance.now() - start).toBeLessThan(500);
});
