import { DLQ_HEADER } from "../contracts/dead-letters.js";
import type { Headers } from "../delivery/handler.js";

/** A message of the stream DLQ. */
export interface StoredLetter {
  readonly seq: number;
  readonly subject: string;
  /** When the stream stored it, in ms since the epoch. */
  readonly time: number;
  readonly headers: Headers;
  readonly body: Uint8Array;
}

/** A letter in a list: what its headers say. Dates are RFC 3339; null stands where a letter has none. */
export interface ListedLetter {
  readonly seq: number;
  readonly reason: string;
  readonly event: string;
  readonly error: string;
  readonly error_code: string;
  readonly stream: string | null;
  readonly stream_seq: number | null;
  readonly consumer: string | null;
  readonly deliveries: number | null;
  readonly first_seen: string;
  readonly failed_at: string;
  readonly redrive_count: number;
}

/** A dead letter, understood. */
export interface Letter {
  readonly listed: ListedLetter;
  /** The subject of the DLQ it lies under. */
  readonly subject: string;
  /** Where it came from: a subject, or the channel of a letter of the bridge. */
  readonly origin: string;
  /** All in ms since the epoch. */
  readonly firstSeenAt: number;
  readonly failedAt: number;
  readonly storedAt: number;
  readonly headers: Headers;
  readonly body: Uint8Array;
}

/** Where letters are kept. What fails there rejects with AppError `unavailable`. */
export interface Letters {
  /** Those there are at the time of the call, oldest first; without bodies unless they are asked for. */
  read(range?: { readonly after?: number | undefined; readonly bodies?: boolean }): AsyncIterable<Letter>;
  /** Undefined where there is no such letter. */
  find(seq: number): Promise<Letter | undefined>;
  /** Does nothing where it is gone already. */
  remove(seq: number): Promise<void>;
}

/** So many of them an error names. */
const NAMED = 20;

/** Letters were named that are not there. */
export class MissingLetters extends Error {
  constructor(seqs: readonly number[]) {
    const more = seqs.length > NAMED ? ` and ${seqs.length - NAMED} more` : "";
    super(`there is no letter ${seqs.slice(0, NAMED).join(", ")}${more} in the DLQ`);
  }
}

/** Understands a letter; one that is not ours gets what its subject and the stream say of it. */
export function letterOfStored({ seq, subject, time, headers, body }: StoredLetter): Letter {
  const [, reason = "", ...event] = subject.split(".");
  const dateOf = (name: string): number => {
    const at = Date.parse(headers.get(name) ?? "");
    return Number.isNaN(at) ? time : at;
  };
  const firstSeenAt = dateOf(DLQ_HEADER.firstSeen);
  const failedAt = dateOf(DLQ_HEADER.failedAt);
  const listed = {
    seq,
    reason: headers.get(DLQ_HEADER.reason) ?? reason,
    event: event.join("."),
    error: headers.get(DLQ_HEADER.error) ?? "",
    error_code: headers.get(DLQ_HEADER.errorCode) ?? "",
    stream: headers.get(DLQ_HEADER.stream) ?? null,
    stream_seq: wholeOf(headers.get(DLQ_HEADER.streamSeq)),
    consumer: headers.get(DLQ_HEADER.consumer) ?? null,
    deliveries: wholeOf(headers.get(DLQ_HEADER.deliveries)),
    first_seen: new Date(firstSeenAt).toISOString(),
    failed_at: new Date(failedAt).toISOString(),
    redrive_count: wholeOf(headers.get(DLQ_HEADER.redriveCount)) ?? 0,
  };
  const origin = headers.get(DLQ_HEADER.subject) ?? "";
  return { listed, subject, origin, firstSeenAt, failedAt, storedAt: time, headers, body };
}

const wholeOf = (text: string | undefined): number | null =>
  text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : null;
