import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MINUTE } from "../kernel/time.js";
import { clearStale } from "./brokers/index.js";

const PREFIX = "avion-timeline-";

/** Makes a data folder of its own, so that several sandboxes can run side by side. */
export async function newDataFolder(): Promise<string> {
  await clearLeftovers();
  return mkdtemp(join(tmpdir(), PREFIX));
}

/** Ends servers of sandboxes that were killed, and removes their folders; those still in use are left alone. */
async function clearLeftovers(): Promise<void> {
  for (const name of (await readdir(tmpdir())).filter((entry) => entry.startsWith(PREFIX))) {
    const folder = join(tmpdir(), name);
    try {
      // A folder just made may belong to a sandbox whose servers have not started yet.
      if (Date.now() - (await stat(folder)).mtimeMs < MINUTE) continue;
      await clearStale(join(folder, "redis"));
      await clearStale(join(folder, "nats"));
      await rm(folder, { recursive: true, force: true });
    } catch {
      // In use, or somebody else's.
    }
  }
}
