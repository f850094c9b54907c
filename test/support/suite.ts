import { test } from "@jest/globals";

/** `npm test` and `npm run test:all` name theirs; where a file is run by itself nothing is left out. */
const suite = process.env["AVION_TEST_SUITE"];

/** Which tests this run declares. */
export const runs = { quick: suite !== "slow", slow: suite !== "quick" } as const;

const none = (): undefined => undefined;
const skip = Object.assign(() => undefined, { each: () => none });
const undeclared = Object.assign(() => undefined, { each: () => none, skip }) as unknown as typeof test;

/**
 * Declares a test that `npm test` runs, and `npm run test:all` does not. A file with single slow tests declares its
 * others by it: each runs once.
 */
export const quickTest = runs.quick ? test : undeclared;

/** Declares a test that only `npm run test:all` runs. */
export const slowTest = runs.slow ? test : undeclared;
