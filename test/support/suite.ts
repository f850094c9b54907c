import { test } from "@jest/globals";

type Declare = (name: string, work: () => Promise<void>, timeoutMs?: number) => void;

/** `npm test` and `npm run test:all` name theirs; where a file is run by itself nothing is left out. */
const suite = process.env["AVION_TEST_SUITE"];

/** Which tests this run declares. */
export const runs = { quick: suite !== "slow", slow: suite !== "quick" } as const;

const declare =
  (included: boolean): Declare =>
  (name, work, timeoutMs) =>
    included ? test(name, work, timeoutMs) : undefined;

/** Declares a test that `npm test` runs, and `npm run test:all` does not. */
export const quickTest: Declare = declare(runs.quick);

/** Declares a test that only `npm run test:all` runs. */
export const slowTest: Declare = declare(runs.slow);
