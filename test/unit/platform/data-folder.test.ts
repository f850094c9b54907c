import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { lockFolder } from "../../../src/platform/db/pglite.js";

let root: string;
let folder: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "timeline-test-lock-"));
  folder = join(root, "below", "pglite");
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

/** Another process that holds the folder until it is ended. */
async function holder(): Promise<{ pid: number; kill(): Promise<void> }> {
  const module = new URL("../../../src/platform/db/pglite.ts", import.meta.url).href;
  const script = `await (await import(${JSON.stringify(module)})).lockFolder(${JSON.stringify(folder)}); console.log("held"); setInterval(() => 0, 1e6);`;
  const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(child.stdout, "data");
  return {
    pid: child.pid as number,
    kill: async () => {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    },
  };
}

test("a folder that another process has open is refused, naming it; once that is dead it is taken over", async () => {
  const other = await holder();
  await expect(lockFolder(folder)).rejects.toThrow(`is open in process ${other.pid}`);
  await other.kill();
  const unlock = await lockFolder(folder);
  await unlock();
  expect(existsSync(`${folder}.lock`)).toBe(false);
});

test("the same process does not get it twice, and again after giving it back", async () => {
  const unlock = await lockFolder(folder);
  await expect(lockFolder(folder)).rejects.toThrow(`process ${process.pid}`);
  await unlock();
  await (await lockFolder(folder))();
});

test("a holder whose process cannot be seen from here holds it for half a minute after it last showed itself", async () => {
  const file = `${folder}.lock`;
  mkdirSync(dirname(file), { recursive: true });
  // As another container would have written it, whose first process has the pid of many others.
  writeFileSync(file, JSON.stringify({ pid: 1, startTime: "1", place: "elsewhere pid:[1]", nonce: "x" }));
  await expect(lockFolder(folder)).rejects.toThrow("is open in process 1");
  const before = new Date(Date.now() - 31_000);
  utimesSync(file, before, before);
  await (await lockFolder(folder))();
});
