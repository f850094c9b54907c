import { expect, test } from "@jest/globals";
import slotOf from "cluster-key-slot";
import { clusterOf } from "../../../src/platform/redis/clusters.js";
import { hiddenKeyOfHome, homeKey, listenerParts, pullsKeyOfHome, recentKey } from "../../../src/state/keys.js";

const HOMES = Array.from({ length: 30_000 }, (_, user) => homeKey(`user-${user}`));

test.each([2, 3, 6, 16])("%i Clusters get the same share of homes, in all of their slots", (count) => {
  const shares = new Array<number>(count).fill(0);
  const parts = new Map<string, number>();
  for (const key of HOMES) {
    const cluster = clusterOf(key, count);
    shares[cluster] = (shares[cluster] ?? 0) + 1;
    // A master has neighbouring slots.
    const master = `${cluster} ${Math.floor(slotOf(key) / 1_639)}`;
    parts.set(master, (parts.get(master) ?? 0) + 1);
  }
  const even = HOMES.length / count;
  for (const share of shares) expect(Math.abs(share - even)).toBeLessThan(5 * Math.sqrt(even));
  expect(parts.size).toBe(10 * count);
  for (const share of parts.values()) expect(Math.abs(share - even / 10)).toBeLessThan(5 * Math.sqrt(even / 10));
});

test("the parts of the index of listeners are in both of two Clusters", () => {
  const second = listenerParts(true).filter((part) => clusterOf(recentKey(part), 2) === 1).length;
  expect(Math.abs(second - 64)).toBeLessThan(20);
});

test("keys with the same hash tag are in the same Cluster", () => {
  for (const key of HOMES.slice(0, 100)) {
    expect(clusterOf(hiddenKeyOfHome(key), 16)).toBe(clusterOf(key, 16));
    expect(clusterOf(pullsKeyOfHome(key), 16)).toBe(clusterOf(key, 16));
  }
  // Redis takes these as a whole.
  const untagged = ["a{}b", "a{b", "a}b{c", "{}a{b}"];
  expect(untagged.map((key) => slotOf(key) === slotOf("b"))).toEqual([false, false, false, false]);
  const cluster = (key: string): number => clusterOf(key, 1_000_003);
  expect(untagged.map((key) => cluster(key) === cluster("b"))).toEqual([false, false, false, false]);
});

test("keys stay in their Clusters from one version to the next", () => {
  const keys = ["timeline:local", "timeline:tombstones", homeKey("ada"), homeKey("bob"), homeKey("grüße"), "{7}"];
  expect(keys.map((key) => clusterOf(key, 2))).toEqual([1, 1, 0, 1, 0, 1]);
  expect(keys.map((key) => clusterOf(key, 3))).toEqual([1, 0, 0, 0, 2, 0]);
});
