// These take minutes: npm run test:all. Named by itself each of their files runs.
const slow =
  process.env.AVION_TEST_SUITE === "quick"
    ? ["slow", "cluster", "faults"].map((name) => `<rootDir>/test/${name}/`)
    : [];

/** @type {import("jest").Config} */
export default {
  testEnvironment: "node",
  roots: ["<rootDir>/test"],
  testPathIgnorePatterns: ["/node_modules/", ...slow],
  globalSetup: "<rootDir>/test/support/bundle.mjs",
  // One more than two cores: files often wait, for processes, consumers and intervals.
  maxWorkers: 3,
  testTimeout: 60_000,
  extensionsToTreatAsEsm: [".ts"],
  moduleNameMapper: { "^(\\.{1,2}/.*)\\.js$": "$1" },
  transform: {
    "^.+\\.ts$": [
      "@swc/jest",
      { jsc: { target: "es2022", parser: { syntax: "typescript" } }, module: { type: "es6" }, sourceMaps: "inline" },
    ],
  },
};
