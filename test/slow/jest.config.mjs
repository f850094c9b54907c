import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import quick from "../../jest.config.mjs";

// The fault tests leave their rows here; the reporter prints them as a table.
process.env.FAULTS_ROWS ??= join(mkdtempSync(join(tmpdir(), "timeline-faults-")), "rows.jsonl");

/** Folders of which every test is slow. */
const SLOW = /^(slow|cluster|faults)\//;

/** Other files with single tests that are marked as slow. */
const MARKED = /\bslow: (true|\w+ !==)|\b(slowTest|longTest)\(|\bruns\.slow\b/;

const files = readdirSync("test", { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".test.ts"));
const slow = files.filter((file) => SLOW.test(file) || MARKED.test(readFileSync(join("test", file), "utf8")));

/** @type {import("jest").Config} */
export default {
  ...quick,
  rootDir: "../..",
  testPathIgnorePatterns: ["/node_modules/"],
  testMatch: slow.map((file) => `<rootDir>/test/${file}`),
  testTimeout: 180_000,
  // No more at a time: a process that starves for longer than ack_wait gets its own messages a second time.
  maxWorkers: 2,
  // What a test has left open would keep Jest from ending.
  forceExit: true,
  reporters: ["default", "<rootDir>/test/faults/table.mjs"],
};
