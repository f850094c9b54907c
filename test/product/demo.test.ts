import { expect, test } from "@jest/globals";
import { runMain } from "../support/service.js";

test("the demo shows the main job and exits 0", async () => {
  const demo = runMain(["demo"], {});
  const { code } = await demo.exited;
  expect({ code, logs: demo.logs() }).toMatchObject({ code: 0 });
  expect(demo.logs()).toMatch(/(\d+) of \1 shown/);
}, 180_000);
