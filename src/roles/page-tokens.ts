import { codeOf } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { createPageTokens, type PageTokens } from "../kernel/paging.js";
import { type Db, readPageSecret } from "../platform/db/db.js";
import { retryUntilDone } from "./connections.js";

const isAway = (error: unknown): boolean => codeOf(error) === "unavailable";

/** Makes the page tokens of a service, once its database can be read. */
export async function openPageTokens(db: Db, schema: "users" | "posts", log: Logger): Promise<PageTokens> {
  const read = () => readPageSecret(db, schema);
  return createPageTokens(await retryUntilDone(read, log, "the secret of page tokens cannot be read yet", isAway));
}
