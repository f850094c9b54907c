import type { GetTimelineRequest } from "../gen/avion/timeline.js";
import { invalid } from "../kernel/errors.js";
import { idFault, RESERVED_DROP_ID } from "../kernel/ids.js";
import { DEFAULT_LIMIT, MAX_CURSOR_CHARS, MAX_LIMIT } from "./timeline-pages.js";
import type { TimelineEntry } from "./timelines.js";

export interface PageRequest {
  readonly limit: number;
  readonly cursor: Cursor | undefined;
}

export interface Cursor {
  readonly kind: "since_id" | "max_id" | "min_id";
  readonly text: string;
}

/** @throws AppError `invalid`, naming the field */
export function parsePageRequest(request: Pick<GetTimelineRequest, "limit" | Cursor["kind"]>): PageRequest {
  const { limit } = request;
  if (limit < 0 || limit > MAX_LIMIT)
    throw invalid("limit", `must be between 1 and ${MAX_LIMIT}, or 0 for ${DEFAULT_LIMIT}`);
  const kinds = (["since_id", "max_id", "min_id"] as const).filter((kind) => request[kind] !== "");
  const [kind, other] = kinds;
  if (other !== undefined) throw invalid(other, `cannot be combined with ${kind}`);
  if (kind === undefined) return { limit: limit || DEFAULT_LIMIT, cursor: undefined };
  const text = request[kind];
  if (text.length > MAX_CURSOR_CHARS || text === RESERVED_DROP_ID)
    throw invalid(kind, "is neither a drop id nor a token");
  return { limit: limit || DEFAULT_LIMIT, cursor: { kind, text } };
}

export function parseUser(user: string): string {
  const fault = idFault(user);
  if (fault) throw invalid("user_id", fault);
  return user;
}

const TOKEN = /^~(\d+)\.([A-Za-z0-9_-]+)$/;

/** Holds the whole position, so that it stays valid after the drop is gone. */
export function toToken({ score, drop }: TimelineEntry): string {
  return tokenOf(score, Buffer.from(drop, "utf8"));
}

export function tokenOf(score: number, drop: Buffer): string {
  return `~${score}.${drop.toString("base64url")}`;
}

export function fromToken(text: string): TimelineEntry | undefined {
  const match = TOKEN.exec(text);
  if (!match) return undefined;
  const score = Number(match[1]);
  if (!Number.isSafeInteger(score)) return undefined;
  const drop = Buffer.from(match[2] as string, "base64url").toString("utf8");
  if (drop === RESERVED_DROP_ID || idFault(drop) !== undefined) return undefined;
  return toToken({ score, drop }) === text ? { score, drop } : undefined;
}
