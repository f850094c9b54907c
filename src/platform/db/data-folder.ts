import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { AppError } from "../../kernel/errors.js";
import { tryLockFile } from "../../kernel/lock-file.js";

/**
 * Takes a data folder for this process, by a file beside it: PGlite has no lock of its own, and two processes in one
 * folder destroy it.
 *
 * @returns what gives it back
 * @throws AppError `conflict` naming the process that holds it
 */
export async function lockFolder(folder: string): Promise<() => Promise<void>> {
  await mkdir(dirname(folder), { recursive: true });
  const lock = await tryLockFile(`${folder}.lock`);
  if (lock.taken) return lock.release;
  throw new AppError(
    "conflict",
    `the data folder ${folder} is open in process ${lock.holder.pid}; name another one by TIMELINE_DATA_DIR, or set DATABASE_URL so that several processes can share a database`,
  );
}
