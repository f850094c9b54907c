import { expect } from "@jest/globals";
import { runMain } from "../support/service.js";
import { quickTest, slowTest } from "../support/suite.js";

async function showsAll(...options: readonly string[]): Promise<void> {
  const demo = runMain(["demo", ...options], {});
  const { code } = await demo.exited;
  expect({ code, logs: code === 0 ? "" : demo.logs() }).toEqual({ code: 0, logs: "" });
  expect(demo.logs()).toMatch(/(\d+) of \1 shown/);
}

quickTest("the demo shows the main job and exits 0", () => showsAll("--followers", "300"), 180_000);
slowTest("the demo shows the main job with an author of 1,200 followers", () => showsAll(), 300_000);
