import { rm } from "node:fs/promises";
import { join } from "node:path";
import { temporaryFolder } from "./brokers.js";
import { postgresPrograms, startPostgres } from "./postgres.js";
import type { Stack } from "./stack.js";

/** Returns the variables of a database of its own: on a server where there is one, since `erase verify` reads no other. */
export async function databaseOf(stack: Stack): Promise<Readonly<Record<string, string>>> {
  if (postgresPrograms() !== undefined) {
    const postgres = await startPostgres();
    stack.afterServices(() => postgres.stop());
    return { DATABASE_URL: postgres.url };
  }
  const folder = await temporaryFolder("data");
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  return { TIMELINE_DATA_DIR: join(folder, "data") };
}
