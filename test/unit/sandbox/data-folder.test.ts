import { existsSync } from "node:fs";
import { mkdir, rm, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { openDataFolder } from "../../../src/sandbox/data-folder.js";
import { temporaryFolder } from "../../support/brokers.js";

const LONG_AGO = new Date(Date.now() - 3_600_000);
let tmp: string;

beforeAll(async () => {
  tmp = await temporaryFolder("sandbox");
});
afterAll(() => rm(tmp, { recursive: true, force: true }));

test("a sandbox removes what a killed one has left, and not the folder of one that runs or of anything else", async () => {
  const [left, other] = [join(tmp, "avion-sandbox-killed"), join(tmp, "avion-timeline-brokers-0")];
  for (const folder of [left, other]) await mkdir(folder);
  await writeFile(join(left, "sandbox.lock"), "{}");
  for (const aged of [join(left, "sandbox.lock"), left, other]) await utimes(aged, LONG_AGO, LONG_AGO);
  const running = await openDataFolder(tmp);
  await utimes(running.folder, LONG_AGO, LONG_AGO);
  const second = await openDataFolder(tmp);
  const kept = [left, other, running.folder, second.folder].filter((folder) => existsSync(folder));
  expect(kept).toEqual([other, running.folder, second.folder]);
  for (const { remove } of [running, second]) await remove?.();
  expect([running.folder, second.folder].some((folder) => existsSync(folder))).toBe(false);
});
