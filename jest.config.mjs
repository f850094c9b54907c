import { TESTS } from "./test/support/jest/bundle.mjs";

// These take minutes: npm run test:all. Named by itself each of their files runs.
const slow =
  process.env.AVION_TEST_SUITE === "quick"
    ? ["slow", "cluster", "faults"].map((name) => `<rootDir>/test/${name}/`)
    : [];

/** @type {import("jest").Config} */
export default {
  // Node itself loads the tests, as bundles.
  globalSetup: "<rootDir>/test/support/jest/bundle.mjs",
  testEnvironment: "<rootDir>/test/support/jest/environment.cjs",
  testEnvironmentOptions: { bundles: TESTS },
  runtime: "<rootDir>/test/support/jest/runtime.cjs",
  testSequencer: "<rootDir>/test/support/jest/sequencer.mjs",
  transform: {},
  roots: ["<rootDir>/test"],
  testPathIgnorePatterns: ["/node_modules/", ...slow],
  // Two more than two cores: files often wait, for processes, consumers and intervals.
  maxWorkers: 4,
  testTimeout: 60_000,
};
