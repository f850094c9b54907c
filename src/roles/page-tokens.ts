import { codeOf } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { createPageTokens, type PageTokens } from "../kernel/paging.js";
import type { Db } from "../platform/db/db.js";
import { readPageSecret } from "../platform/db/page-secret.js";
import { retryUntilDone } from "./connections.js";

/** Makes the page tokens of a service, once its database can be read. */
export async function openPageTokens(db: Db, schema: "users" | "posts", log: Logger): Promise<PageTokens> {
  let secret = "";
  const read = async (): Promise<void> => {
    secret = await readPageSecret(db, schema);
  };
  await retryUntilDone(
    read,
    log,
    "the secret of page tokens cannot be read yet",
    (error) => codeOf(error) === "unavailable",
  );
  return createPageTokens(secret);
}
