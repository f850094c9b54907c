import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openPglite } from "../../src/platform/db/pglite.js";
import { makeWalSparse } from "./wal.js";

/** Two of the three databases of a new cluster are templates. Nobody makes a database in a PGlite. */
const DROP_TEMPLATES = [
  "UPDATE pg_database SET datistemplate = false",
  "DROP DATABASE template0",
  "DROP DATABASE template1",
  "CHECKPOINT",
];

/** Fills a TIMELINE_DATA_DIR that has no database yet: making one takes a process a second of CPU time, a copy less. */
export async function fillDataFolder(dataDir: string): Promise<void> {
  const folder = join(dataDir, "pglite");
  if (existsSync(folder)) return;
  mkdirSync(dataDir, { recursive: true });
  execFileSync("cp", ["-a", await emptyDatabase(), folder]);
}

/** A database without any schema of ours, kept for each version and user. */
async function emptyDatabase(): Promise<string> {
  const { dependencies } = JSON.parse(readFileSync("package.json", "utf8"));
  const version = dependencies["@electric-sql/pglite"];
  const kept = join(tmpdir(), `timeline-test-pglite-small-${version}-${process.getuid?.()}`);
  if (existsSync(kept)) return kept;
  const draft = mkdtempSync(`${kept}-`);
  const db = await openPglite({ folder: join(draft, "data") });
  for (const statement of DROP_TEMPLATES) await db.run(statement);
  await db.close();
  makeWalSparse(join(draft, "data"));
  try {
    renameSync(join(draft, "data"), kept);
  } catch {
    // Another file's worker was faster.
  }
  rmSync(draft, { recursive: true, force: true });
  return kept;
}
