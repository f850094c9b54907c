import { crc32 } from "node:zlib";
import { ERASED_EVENT, HIDING_EVENT, LOGGED_OUT_EVENT, type SharedTimeline } from "../contracts/stream-events.js";
import { encodeId } from "../kernel/ids.js";
import type { Hiding } from "../state/index.js";
import type { Headers } from "../telemetry/spans.js";

/** Sequences of two incarnations cannot be compared: a stream that is created again counts from 1. */
export interface StreamPosition {
  readonly seq: number;
  /** {@link incarnationOf} the user's part of NOTIFY. */
  readonly incarnation: string;
  /** The listing of the user is named, since no sequence tells what was not stored between two listings. */
  readonly listing: string;
  /**
   * Check of the notification that moved the position there; unset if the stream has confirmed it.
   */
  readonly check?: string | undefined;
}

/** Names the stream by its creation, in ms since the epoch, and by its part if NOTIFY has several. */
export const incarnationOf = (createdAt: number, part?: number): string =>
  createdAt.toString(36) + (part === undefined ? "" : `.${part}`);

/**
 * Clients hold a position (`id:`) as `17-mi9c3k2v-4fzyo82m`, or as `17-mi9c3k2v-4fzyo82m-1x7v2k9` with a check. In part 3 of
 * several the incarnation is `mi9c3k2v.3`.
 */
const formatPosition = ({ seq, incarnation, listing, check }: StreamPosition): string =>
  `${seq}-${incarnation}-${listing}${check === undefined ? "" : `-${check}`}`;

const POSITION = /^(\d{1,16})-([0-9a-z]{1,16}(?:\.\d{1,2})?)-([0-9a-z]{1,16})(?:-([0-9a-z]{1,7}))?$/;

export function parsePosition(text: string): StreamPosition | undefined {
  const [, digits, incarnation = "", listing = "", check] = POSITION.exec(text) ?? [];
  const seq = Number(digits);
  return Number.isSafeInteger(seq) ? { seq, incarnation, listing, check } : undefined;
}

/** Tells a notification from a forged one with its sequence, by its body. */
export const checkOf = (body: Uint8Array): string => crc32(body).toString(36);

export interface Notification {
  readonly seq: number;
  /** Sequence of the user's notification before this one; only live ones have it. */
  readonly previous?: number | undefined;
  /** The time is in the format of RFC 3339. */
  readonly storedAt?: string | undefined;
  /** The headers are kept only if the trace is recorded. */
  readonly traced?: Headers | undefined;
  readonly content?: Content | undefined;
  /** Nothing is sent: drops of a user are hidden from now on, or are not. */
  readonly hiding?: HidingChange | undefined;
  /** Nothing is sent: the user is erased. */
  readonly erased?: boolean | undefined;
  /** Nothing is sent: the user's tokens issued before this time, in ms since the epoch, are refused. */
  readonly loggedOutAt?: number | undefined;
  readonly check: string;
  /** When the gateway got it, of performance.now(). */
  readonly heardAt?: number;
  /** The block on the wire is made for the first of the user's streams that sends it, and names this listing. */
  frame?: { readonly listing: string; readonly block: string };
}

export interface Content {
  readonly event: string;
  readonly data: string;
  /** Notifications with the same key are duplicates; undefined: never a duplicate. */
  readonly key?: string | undefined;
  readonly createdAt?: number | undefined;
  /** The byline of a drop, as text; of a notification its actor. */
  readonly by?: string | undefined;
  /** Key of a notification after which this one is not sent. */
  readonly endedBy?: string | undefined;
}

export interface HidingChange {
  readonly target: string;
  readonly hiding: Hiding | undefined;
  /** ms since the epoch; undefined: it does not end by itself. */
  readonly until?: number | undefined;
}

const EVENT = /^[a-z][a-z0-9_]{0,63}$/;
/** Fan-out writes bodies of this form, without a character that JSON escapes: they need not be parsed. */
const PLAIN =
  /^\{"event":"(new_drop|drop_deleted)",("drop_id":"([ !#-[\]-~]+)"(?:,"created_at":(0|[1-9]\d{0,14}))?)(?:,"by":"([\w=,-]*)")?\}$/;
/** Events that tell of a drop. */
export const DROP_EVENTS: readonly string[] = ["new_drop", "drop_edited", "drop_deleted"];
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Reads the body of a notification; `messageId` makes the key of a notification without a drop. */
export function readContent(body: Uint8Array, messageId: () => string | undefined): Content | undefined {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const [, name = "", fields = "", dropId = "", time, by] = PLAIN.exec(bytes.toString("latin1")) ?? [];
  if (name !== "" && (name === "new_drop") === (time !== undefined))
    return {
      event: name,
      data: `{${fields}}`,
      key: `${name}\n${dropId}`,
      createdAt: time === undefined ? undefined : Number(time),
      by,
    };
  return contentOf(parseObject(body), messageId);
}

function contentOf(
  value: Record<string, unknown> | undefined,
  messageId: () => string | undefined,
): Content | undefined {
  if (value === undefined) return undefined;
  const { event, ...rest } = value;
  // The name is a line of the event stream: other characters could inject fields.
  if (typeof event !== "string" || !EVENT.test(event)) return undefined;
  const { drop_id: drop, created_at: createdAt, revision, by: byline, actor_id: actor } = rest;
  const isTold = event === "notification";
  // A drop has many notifications, and positions in several timelines, to which it may come back.
  const isOfDrop = typeof drop === "string" && !isTold && event !== "new_position";
  const id = isOfDrop ? drop : messageId();
  const isEdit = event === "drop_edited";
  return {
    event,
    data: JSON.stringify(fieldsOf(event, rest)),
    key: id === undefined ? undefined : `${event}\n${id}${isEdit ? `\n${Number(revision)}` : ""}`,
    createdAt: typeof createdAt === "number" ? createdAt : undefined,
    by: isTold
      ? encodeId(String(actor))
      : DROP_EVENTS.includes(event) && typeof byline === "string"
        ? byline
        : undefined,
    endedBy: isEdit ? `drop_deleted\n${id}` : undefined,
  };
}

/** Reads the body of a message for the gateway itself, whose event begins with ~; nothing is in any other. */
export function readSignal(body: Uint8Array): Pick<Notification, "hiding" | "erased" | "loggedOutAt"> {
  const { event, user_id: target, hiding, until, at: timestamp } = parseObject(body) ?? {};
  if (event === ERASED_EVENT) return { erased: true };
  if (event === LOGGED_OUT_EVENT && typeof timestamp === "number") return { loggedOutAt: timestamp };
  if (event !== HIDING_EVENT || typeof target !== "string") return {};
  const end = typeof until === "number" ? until : undefined;
  return { hiding: { target, hiding: hiding === "all" || hiding === "reposts" ? hiding : undefined, until: end } };
}

/** A message of SHARED: a change of local or global, or a user whose relations changed. */
export type SharedMessage =
  | {
      readonly content: Content;
      readonly drop: string;
      /** The timelines that show the drop now: local stands for both. */
      readonly shownIn: SharedTimeline | undefined;
    }
  | { readonly viewer: string };

export function readShared(body: Uint8Array): SharedMessage | undefined {
  const value = parseObject(body);
  const { event, user_id: viewer, drop_id: drop, shown_in: shown } = value ?? {};
  if (event === HIDING_EVENT) return typeof viewer === "string" ? { viewer } : undefined;
  const content = contentOf(value, () => undefined);
  if (content === undefined || typeof drop !== "string") return undefined;
  const by = typeof value?.["by"] === "string" ? value["by"] : undefined;
  const shownIn = shown === "local" || shown === "global" ? shown : undefined;
  return { content: { ...content, by }, drop, shownIn };
}

function fieldsOf(event: string, rest: Record<string, unknown>): Record<string, unknown> {
  const { drop_id, created_at, repost_of, revision } = rest;
  if (event === "new_drop") return { drop_id, created_at, ...(repost_of !== undefined && { repost_of }) };
  if (event === "drop_deleted") return { drop_id };
  if (event === "drop_edited") return { drop_id, revision };
  return rest;
}

function parseObject(body: Uint8Array): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(decoder.decode(body));
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** @param position the notification's own position */
export function frameOf(notification: Notification, position: StreamPosition): string {
  const { content, frame } = notification;
  if (!content) return "";
  if (frame?.listing === position.listing) return frame.block;
  const block = notificationBlock(position, content);
  notification.frame = { listing: position.listing, block };
  return block;
}

export function notificationBlock(position: StreamPosition, { event, data }: Content): string {
  return `id: ${formatPosition(position)}\nevent: ${event}\ndata: ${data}\n\n`;
}

export function resetBlock(position: StreamPosition, reason: string): string {
  return notificationBlock(position, { event: "reset", data: JSON.stringify({ reason }) });
}

/**
 * Moves the client's last event id without dispatching an event: the id is taken over at the blank line, before empty
 * data ends the dispatch (WHATWG HTML, section 9.2.6).
 */
export function positionBlock(position: StreamPosition, comment: string): string {
  return `: ${comment}\nid: ${formatPosition(position)}\n\n`;
}

/** A reset is in the block of its position: a client that got the one and not the other would resume without a reset. */
export function greetingBlock(position: StreamPosition, retryMs: number, reset?: string): string {
  const block =
    reset === undefined ? positionBlock(position, "connected") : `: connected\n${resetBlock(position, reset)}`;
  return `retry: ${retryMs}\n${block}`;
}

const TRACE_HEADERS = ["traceparent", "tracestate", "baggage"];

/** Copies the values, so that the message they are read from is freed. Returns undefined if there is no trace. */
export function traceOf(header: (name: string) => string | undefined): Headers | undefined {
  if (!header("traceparent")) return undefined;
  const headers = new Map(TRACE_HEADERS.map((name) => [name, header(name) ?? ""]));
  return { get: (name) => headers.get(name), entries: () => headers.entries() };
}

/** The last two digits are flags, of which the lowest is "sampled" (W3C Trace Context, section 3.2.2.5). */
export function isSampled(traceparent: string | undefined): boolean {
  return traceparent !== undefined && (Number.parseInt(traceparent.slice(-2), 16) & 1) === 1;
}
