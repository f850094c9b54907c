import { readFile } from "node:fs/promises";
import { expect, test } from "@jest/globals";

interface Locked {
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/** Where node would look for a dependency of the package at `path`, nearest first. */
const placesOf = (path: string, name: string): string[] => {
  const parents = path
    .split("/node_modules/")
    .map((_, index, parts) => parts.slice(0, parts.length - index).join("/node_modules/"));
  return [...parents.map((parent) => `${parent}/node_modules/${name}`), `node_modules/${name}`];
};

// A registry that lacks a platform's package leaves it out of the lock file
// without a word, and `npm ci` refuses such a lock file (npm/cli#9846).
test("the lock file holds the optional packages of every platform", async () => {
  const lock = JSON.parse(await readFile("package-lock.json", "utf8")) as { packages: Record<string, Locked> };
  const missing = Object.entries(lock.packages).flatMap(([path, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).filter((name) => !placesOf(path, name).some((place) => place in lock.packages)),
  );
  expect(missing).toEqual([]);
});
