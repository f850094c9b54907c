import { AppError } from "../kernel/errors.js";

export type IdColumns = readonly [string, string];

export const EDGE_IDS: IdColumns = ["follower_id", "following_id"];
export const RELATION_IDS: IdColumns = ["user_id", "target_id"];

/**
 * Returns an SQL expression: the name of the first of two columns whose user is erased, or null. A write that looks in
 * its own statement either sees the erasure, or is older than it and waited for. LIMIT keeps it one look-up of an index.
 */
export const erasedColumn = (row: string, [first, second]: IdColumns): string => `(
  SELECT CASE x.user_id WHEN ${row}.${first} THEN '${first}' ELSE '${second}' END FROM users.erasures x
  WHERE x.user_id IN (${row}.${first}, ${row}.${second}) ORDER BY x.user_id = ${row}.${first} DESC LIMIT 1)`;

/**
 * The planner expects a CASE to be true for half of the rows, so it plans joins of many rows as without it. OFFSET keeps
 * it from reading all erasures.
 */
export const isNotErased = (...ids: readonly string[]): string => `CASE WHEN EXISTS (
  SELECT FROM users.erasures x WHERE x.user_id IN (${ids.join(", ")}) OFFSET 0
) THEN false ELSE true END`;

export const erasedConflict = (field: string): AppError => new AppError("conflict", `${field}: is erased`);
