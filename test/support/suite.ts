import { test } from "@jest/globals";

export type Declare = (name: string, work: () => Promise<void>, timeoutMs?: number) => void;

/** `npm test` and `npm run test:all` name theirs; where a file is run by itself nothing is left out. */
const suite = process.env["TIMELINE_TEST_SUITE"];

const nothing: Declare = () => undefined;

/** Declares a test that `npm test` runs, and `npm run test:all` does not. */
export const quickTest: Declare = suite === "slow" ? nothing : (name, work, timeoutMs) => test(name, work, timeoutMs);

/** Declares a test that only `npm run test:all` runs. */
export const slowTest: Declare = suite === "quick" ? nothing : (name, work, timeoutMs) => test(name, work, timeoutMs);
