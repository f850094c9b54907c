import type { Queries } from "./db.js";

/** The secret a service seals its page tokens with; made by its migration, and the same for all its processes. */
export async function readPageSecret(db: Queries, schema: "users" | "posts"): Promise<string> {
  const [row] = await db.query<{ secret: string }>(`SELECT secret FROM ${schema}.page_secret`);
  if (row === undefined) throw new Error(`${schema}.page_secret has no row`);
  return row.secret;
}
