import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { MUTANTS } from "../../mutants/mutants.js";

test("each mutant finds its line once, and has a test file", () => {
  for (const { source, text, test: file } of MUTANTS) {
    expect([source, readFileSync(`src/${source}`, "utf8").split(text).length]).toEqual([source, 2]);
    expect([file, existsSync(`test/${file}`)]).toEqual([file, true]);
  }
});
