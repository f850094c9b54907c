import { readdirSync, readFileSync, truncateSync } from "node:fs";
import { join } from "node:path";

/** Makes the zeros at the end of the WAL a hole, which `cp` does not write. */
export function makeWalSparse(cluster: string): void {
  const folder = join(cluster, "pg_wal");
  for (const name of readdirSync(folder).filter((one) => /^[0-9A-F]{24}$/.test(one))) {
    const segment = join(folder, name);
    const bytes = readFileSync(segment);
    let used = bytes.length;
    while (used > 0 && bytes[used - 1] === 0) used -= 1;
    truncateSync(segment, used);
    truncateSync(segment, bytes.length);
  }
}
