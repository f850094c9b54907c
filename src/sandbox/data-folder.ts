import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { tryLockFile } from "../kernel/lock-file.js";
import { MINUTE } from "../kernel/time.js";

const PREFIX = "avion-sandbox-";

/** Makes a folder for a sandbox, several of which may run, and removes the folders of those that were killed. */
export async function openDataFolder(parent = tmpdir()) {
  // Another user's folder cannot be removed.
  for (const name of (await readdir(parent)).filter((entry) => entry.startsWith(PREFIX)))
    await removeLeft(join(parent, name)).catch(() => undefined);
  const folder = await mkdtemp(join(parent, PREFIX));
  return { folder, remove: await claim(folder) };
}

async function removeLeft(folder: string): Promise<void> {
  // A folder just made may not be claimed yet.
  if (Date.now() - (await stat(folder)).mtimeMs < MINUTE) return;
  const remove = await claim(folder);
  await remove?.();
}

/** Resolves to the function that removes the folder; undefined while another process uses it. */
async function claim(folder: string): Promise<(() => Promise<void>) | undefined> {
  const lock = await tryLockFile(join(folder, "sandbox.lock"));
  if (!lock.taken) return undefined;
  return async () => {
    await lock.release();
    await rm(folder, { recursive: true, force: true });
  };
}
