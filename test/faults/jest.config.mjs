import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import usual from "../../jest.config.mjs";

// Tests leave their rows here; the reporter prints them as a table.
process.env.FAULTS_ROWS ??= join(mkdtempSync(join(tmpdir(), "timeline-faults-")), "rows.jsonl");

/** @type {import("jest").Config} */
export default {
  ...usual,
  rootDir: "../..",
  roots: ["<rootDir>/test/faults"],
  testPathIgnorePatterns: ["/node_modules/"],
  testTimeout: 180_000,
  verbose: true,
  reporters: ["default", "<rootDir>/test/faults/table.mjs"],
};
