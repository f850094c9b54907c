import { invalid } from "../kernel/errors.js";
import { idFault } from "../kernel/ids.js";
import type { ListName, PageLimits, PageTokens } from "../kernel/paging.js";

export const ID_PAGES: PageLimits = { usual: 1_000, most: 5_000 };

/** A page of profiles must fit into gRPC's 4 MiB. */
export const PROFILE_PAGES: PageLimits = { usual: 100, most: 500 };

const NUL = "\u0000";

/** PostgreSQL stores no NUL. */
export function userIdFault(id: string): string | undefined {
  return idFault(id) ?? (id.includes(NUL) ? "must not contain NUL" : undefined);
}

// Each reader throws an AppError `invalid` that names the field.

export function readUserId(field: string, id: string): string {
  const fault = userIdFault(id);
  if (fault !== undefined) throw invalid(field, fault);
  return id;
}

export function readText(field: string, text: string, most: number): string {
  if (text.includes(NUL)) throw invalid(field, "must not contain NUL");
  if (text.length > most && Array.from(text).length > most)
    throw invalid(field, `must have at most ${most} characters`);
  return text;
}

/** A token whose key is one id; "" for the empty token. */
export function readIdToken(tokens: PageTokens, list: ListName, token: string): string {
  const [id] = tokens.read<[string]>(list, token) ?? [""];
  return id;
}
