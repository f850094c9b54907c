import type { GetTimelineRequest } from "../gen/avion/timeline.js";
import { invalid } from "../kernel/errors.js";
import { FLOOR_MEMBER, idFault } from "../kernel/ids.js";

/** A page that was asked for: at most one of the cursors is set. */
export interface PageRequest {
  readonly limit: number;
  readonly cursor: Cursor | undefined;
}

/** A drop id or token, and which side of it is wanted. */
export interface Cursor {
  readonly kind: "since_id" | "max_id" | "min_id";
  readonly text: string;
}

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 100;
/** A token is longer than the id in it: its base64url, and the time. */
const MAX_CURSOR_CHARS = 256;

/** Narrows a request to what is allowed; throws `invalid`, naming the field. */
export function parsePageRequest(request: GetTimelineRequest): PageRequest {
  const { limit } = request;
  if (limit < 0 || limit > MAX_LIMIT)
    throw invalid("limit", `must be between 1 and ${MAX_LIMIT}, or 0 for ${DEFAULT_LIMIT}`);
  const kinds = (["since_id", "max_id", "min_id"] as const).filter((kind) => request[kind] !== "");
  const [kind, other] = kinds;
  if (other !== undefined) throw invalid(other, `cannot be combined with ${kind}`);
  if (kind === undefined) return { limit: limit || DEFAULT_LIMIT, cursor: undefined };
  const text = request[kind];
  if (text.length > MAX_CURSOR_CHARS || text === FLOOR_MEMBER) throw invalid(kind, "is no drop id and no token");
  return { limit: limit || DEFAULT_LIMIT, cursor: { kind, text } };
}

/** Checks the user whose home timeline is asked for. */
export function parseUser(user: string): string {
  const fault = idFault(user);
  if (fault) throw invalid("user_id", fault);
  return user;
}
