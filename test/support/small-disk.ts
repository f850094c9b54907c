import { spawnSync } from "node:child_process";
import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "@jest/globals";
import { temporaryFolder } from "./brokers.js";

/** A file system of its own, in memory. */
export interface SmallDisk {
  readonly dir: string;
  /** Takes all room that is left. */
  fill(): void;
  /** Gives it back. */
  makeRoom(): void;
  close(): Promise<void>;
}

const BLOCK = Buffer.alloc(4_096);

/** Mounts it. @throws Error without the right to mount */
export async function openSmallDisk(megabytes: number): Promise<SmallDisk> {
  const dir = await temporaryFolder("disk");
  run("mount", "-t", "tmpfs", "-o", `size=${megabytes}m,mode=1777`, "tmpfs", dir);
  const ballast = join(dir, "ballast");
  return {
    dir,
    fill: () => {
      const file = openSync(ballast, "a");
      try {
        while (writeSync(file, BLOCK) > 0);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
      } finally {
        closeSync(file);
      }
    },
    makeRoom: () => rmSync(ballast),
    close: async () => {
      // Not "busy" where a failing test left a server.
      run("umount", "-l", dir);
      await rm(dir, { recursive: true });
    },
  };
}

function run(command: string, ...args: readonly string[]): void {
  const { status, stderr, error } = spawnSync(command, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`${command}: ${stderr || error?.message}`);
}

const mayMount = await openSmallDisk(1).then(
  async (disk) => {
    await disk.close();
    return true;
  },
  () => false,
);

/** Declares a test that needs a file system of its own; where none can be mounted, its line in the report says so. */
export const diskTest = (name: string, work: () => Promise<void>, timeoutMs: number): void =>
  mayMount ? test(name, work, timeoutMs) : test.skip(`${name} (skipped: needs the right to mount a tmpfs)`, work);
