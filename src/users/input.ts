import { invalid } from "../kernel/errors.js";
import { idFault } from "../kernel/ids.js";
import type { ListName, PageLimits, PageTokens } from "../kernel/paging.js";

/** Pages of ids. */
export const ID_PAGES: PageLimits = { usual: 1_000, most: 5_000 };

/** Pages of profiles, which must fit gRPC's 4 MiB. */
export const PROFILE_PAGES: PageLimits = { usual: 100, most: 500 };

const NUL = "\u0000";

/** Says what is wrong with a user id, or undefined where nothing is. PostgreSQL keeps no NUL. */
export function userIdFault(id: string): string | undefined {
  return idFault(id) ?? (id.includes(NUL) ? "must not contain NUL" : undefined);
}

/** Reads a user id of a field. @throws AppError `invalid` */
export function readUserId(field: string, id: string): string {
  const fault = userIdFault(id);
  if (fault !== undefined) throw invalid(field, fault);
  return id;
}

/** Reads some text of at most so many characters. @throws AppError `invalid` */
export function readText(field: string, text: string, most: number): string {
  if (text.includes(NUL)) throw invalid(field, "must not contain NUL");
  if (text.length > most && Array.from(text).length > most)
    throw invalid(field, `must have at most ${most} characters`);
  return text;
}

/** Reads a token whose key is one id; "" for the empty token. @throws AppError `invalid` */
export function readIdToken(tokens: PageTokens, list: ListName, token: string): string {
  const [id] = tokens.read<[string]>(list, token) ?? [""];
  return id;
}
