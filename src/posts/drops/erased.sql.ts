import { AppError } from "../../kernel/errors.js";
import type { Db } from "../../platform/db/db.js";
import { SQLSTATE, sqlState } from "../../platform/db/errors.js";

/** A condition of a write of one user: it changes nothing once the user is erased. */
export const notErased = (user: string): string => `NOT EXISTS (SELECT FROM posts.erased WHERE user_id = ${user})`;

/** A condition of a write of several users: the statement fails with P0001 if one of an array is erased. */
export const noneErased = (users: string): string =>
  `(SELECT count(posts.refuse_erased(e.user_id)) FROM posts.erased e WHERE e.user_id = ANY (${users})) = 0`;

type Field = "user_id" | "recipients" | "mentions" | "actor_uri" | "uri";

export const erasedConflict = (field: Field): AppError => new AppError("conflict", `${field}: the user is erased`);

interface People {
  readonly user_id: string;
  readonly recipients?: readonly string[];
  readonly mentions?: readonly string[];
}

/** Throws an error again; that of {@link noneErased} as AppError `conflict`, which names the field with the user. */
export function rethrowErased(error: unknown, { user_id, recipients = [] }: People): never {
  if (sqlState(error) !== SQLSTATE.raised) throw error;
  const { detail = "" } = error as { detail?: string };
  throw erasedConflict(detail === user_id ? "user_id" : recipients.includes(detail) ? "recipients" : "mentions");
}

export function createErasedReads(db: Db) {
  return {
    among: async (users: readonly string[]): Promise<ReadonlySet<string>> => {
      const sql = `SELECT user_id AS "user" FROM posts.erased WHERE user_id = ANY ($1::text[])`;
      return new Set((await db.query<{ user: string }>(sql, [users])).map(({ user }) => user));
    },
  };
}

interface WithErased {
  readonly store: { readonly erased: ReturnType<typeof createErasedReads> };
}

/**
 * Refuses an erased user for answers that are given before, or without, a statement that refuses. @throws AppError
 * `conflict` if the user is erased
 */
export async function refuseErased({ store }: WithErased, user: string): Promise<void> {
  if ((await store.erased.among([user])).size > 0) throw erasedConflict("user_id");
}
