import type { FeedState } from "./ports.js";
import { type Position, readId } from "./position.js";

/** Why a stream cannot be continued where it stood. */
export const RESET_REASONS = ["unknown_position", "too_old", "registration_lost", "stream_replaced"] as const;
export type ResetReason = (typeof RESET_REASONS)[number];

/** What a client asks for when it connects. */
export type Wanted =
  | { readonly kind: "new" }
  | { readonly kind: "after"; readonly position: Position }
  /** It names a position that can never have been one, or does not say of which incarnation of the stream. */
  | { readonly kind: "nonsense" };

/** Reads a `Last-Event-ID` header. */
export function readLastEventId(header: string | undefined): Wanted {
  if (header === undefined || header === "") return { kind: "new" };
  const position = readId(header);
  return position ? { kind: "after", position } : { kind: "nonsense" };
}

/** More than this is not replayed, whatever the stream keeps. */
export const MOST_REPLAYED = 1_024;

/** What was found after a position, and the stream as it was when the reading had ended. */
export interface Found {
  readonly position: number;
  /** How many of the user's notifications came after the position, as far as known. */
  readonly count: number;
  readonly state: FeedState;
  /** The user's oldest notification still held after the reading; undefined: not asked for. */
  readonly oldest?: number | undefined;
}

/**
 * Says why it is not proved that everything after a position was found; undefined: it is.
 *
 * Two things remove notifications: age, from the front of the whole stream, and the limit
 * a user. Nothing after the position aged out as long as the stream's first sequence is not
 * beyond the next one. The limit removes the oldest while as many newer ones are held: so
 * it removed none after the position where fewer are known than that, or where one at or
 * below the position is still held. `state` and `oldest` must be newer than the reading:
 * what they do not show as removed then had not been removed when it was read.
 */
export function incompleteness({ position, count, state, oldest }: Found): ResetReason | undefined {
  if (position > state.lastSeq) return "unknown_position";
  if (state.firstSeq > position + 1) return "too_old";
  if (count >= MOST_REPLAYED) return "too_old";
  if (count >= state.perSubject && !(oldest !== undefined && oldest <= position)) return "too_old";
  return undefined;
}
