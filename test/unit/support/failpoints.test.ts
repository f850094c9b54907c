import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "@jest/globals";
import { failpoint, hookFailpoints } from "../../../src/kernel/failpoints.js";
import { failpointsOf } from "../../support/failpoints.js";

afterEach(() => hookFailpoints(undefined));

test("without a hook a failpoint does nothing, whatever the environment says", async () => {
  process.env["TIMELINE_FAILPOINTS"] = "written=throw";
  await expect(failpoint("written", "d1")).resolves.toBeUndefined();
  delete process.env["TIMELINE_FAILPOINTS"];
});

test("a failpoint is hit by the messages it names only", async () => {
  hookFailpoints(failpointsOf("written=throw@d1, close=throw%1,acked=throw%0"));
  await expect(failpoint("written", "d0", Buffer.from("a d1"))).rejects.toThrow("failpoint written");
  await expect(failpoint("close")).rejects.toThrow("failpoint close");
  await failpoint("written", "d0");
  await failpoint("acked", "d1");
  await failpoint("write", "d1");
});

test.each(["written", "written=explode", "nowhere=kill"])("%s is refused", (text) => {
  expect(() => failpointsOf(text)).toThrow(`"${text}" is not name=action of`);
});

test("the product sets no hook and reads no variable of the tests", () => {
  const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
  const textOf = (file: string): string => readFileSync(join("src", file), "utf8");
  const naming = (text: string): string[] => files.filter((file) => textOf(file).includes(text));
  expect(naming("hookFailpoints")).toEqual([join("kernel", "failpoints.ts")]);
  expect(naming("AVION_TEST_")).toEqual([]);
});
