// These take minutes: npm run test:all. Named by itself each of their files runs.
const slow =
  process.env.AVION_TEST_SUITE === "quick"
    ? ["slow", "cluster", "faults"].map((name) => `<rootDir>/test/${name}/`)
    : [];

/** @type {import("jest").Config} */
export default {
  globalSetup: "<rootDir>/test/support/jest/bundle.mjs",
  runtime: "<rootDir>/test/support/jest/runtime.mjs",
  testEnvironment: "<rootDir>/test/support/jest/environment.mjs",
  testSequencer: "<rootDir>/test/support/jest/sequencer.mjs",
  transform: { "\\.ts$": ["@swc/jest", { jsc: { target: "es2023", parser: { syntax: "typescript" } } }] },
  extensionsToTreatAsEsm: [".ts"],
  moduleNameMapper: { "^(\\.{1,2}/.*)\\.js$": "$1" },
  roots: ["<rootDir>/test"],
  testPathIgnorePatterns: ["/node_modules/", ...slow],
  // Two more than two cores: files often wait, for processes, consumers and intervals.
  maxWorkers: 4,
  // Jest keeps some 10 MB of each file for ever.
  workerIdleMemoryLimit: "500MB",
  testTimeout: 60_000,
};
