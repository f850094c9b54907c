import type { Redis } from "ioredis";
import { encodeId } from "../../src/kernel/ids.js";
import type { Db } from "../../src/platform/db/db.js";

const TABLES = `
SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname IN ('users', 'public')
  AND c.relname NOT IN ('erasures', 'erasure_steps', 'avion_migrations')`;

/** Rows of users.* and the outbox that contain one of these ids, by table: the ids must be part of no other text. */
export async function rowsNaming(db: Db, ids: readonly string[]): Promise<string[]> {
  const texts = [...new Set(ids.flatMap((id) => [id, encodeId(id)]))];
  const found: string[] = [];
  for (const { name } of await db.query<{ name: string }>(TABLES)) {
    const sql = `SELECT t::text AS row FROM ${name} t
      WHERE EXISTS (SELECT FROM unnest($1::text[]) AS id WHERE strpos(t::text, id) > 0) LIMIT 10`;
    for (const { row } of await db.query<{ row: string }>(sql, [texts])) found.push(`${name}: ${row}`);
  }
  return found;
}

/** Keys that contain the id in their names or members. */
export async function keysNaming(raw: Redis, id: string): Promise<string[]> {
  const texts = [id, encodeId(id)];
  const names = (text: string): boolean => texts.some((one) => text.includes(one));
  const found: string[] = [];
  for (const key of await raw.keys("*")) {
    const type = await raw.type(key);
    const members =
      type === "zset" ? await raw.zrange(key, "0", "-1") : type === "string" ? [(await raw.get(key)) ?? ""] : [];
    if (names(key) || members.some(names)) found.push(key);
  }
  return found;
}
