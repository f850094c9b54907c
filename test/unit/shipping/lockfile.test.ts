import { readFile } from "node:fs/promises";
import { expect, test } from "@jest/globals";

interface Locked {
  readonly link?: boolean;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/** Folders in which node looks for a dependency of the package at `path`, nearest first. */
const placesOf = (path: string, name: string): string[] => {
  const parents = path
    .split("/node_modules/")
    .map((_, index, parts) => parts.slice(0, parts.length - index).join("/node_modules/"));
  return [...parents.map((parent) => `${parent}/node_modules/${name}`), `node_modules/${name}`];
};

const readLock = async (): Promise<{ packages: Record<string, Locked> }> =>
  JSON.parse(await readFile("package-lock.json", "utf8"));

// A registry that lacks a platform's package leaves it out of the lock file
// without a word, and `npm ci` refuses such a lock file (npm/cli#9846).
test("the lock file holds the optional packages of every platform", async () => {
  const lock = await readLock();
  const missing = Object.entries(lock.packages).flatMap(([path, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).filter((name) => !placesOf(path, name).some((place) => place in lock.packages)),
  );
  expect(missing).toEqual([]);
});

test("every package in the lock file has an integrity hash", async () => {
  const { packages } = await readLock();
  const unproven = Object.entries(packages).filter(([path, { link, integrity }]) => path !== "" && !link && !integrity);
  expect(unproven.map(([path]) => path)).toEqual([]);
});

test("the lock file names no registry, so that each machine uses its own", async () => {
  const { packages } = await readLock();
  expect(Object.values(packages).flatMap(({ resolved, link }) => (link ? [] : (resolved ?? [])))).toEqual([]);
});
