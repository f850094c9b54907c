import type { Content } from "./ports.js";
import { idOf, type Position } from "./position.js";

const EVENT = /^[a-z][a-z0-9_]{0,63}$/;
const decoder = new TextDecoder("utf-8", { fatal: true });

/** Reads the body of a notification; undefined where it is none. `messageId` tells apart what names no drop. */
export function readContent(body: Uint8Array, messageId: string | undefined): Content | undefined {
  const value = parse(body);
  if (value === undefined) return undefined;
  const { event, ...rest } = value;
  // The name goes into a line of its own on the wire, so that nothing but a plain word will do.
  if (typeof event !== "string" || !EVENT.test(event)) return undefined;
  const drop = rest["drop_id"];
  const createdAt = rest["created_at"];
  const id = typeof drop === "string" ? drop : messageId;
  return {
    event,
    data: JSON.stringify(fieldsOf(event, rest)),
    key: id === undefined ? undefined : `${event}\n${id}`,
    createdAt: typeof createdAt === "number" ? createdAt : undefined,
  };
}

/** The block of a notification, as it goes over the wire. */
export function blockOf(position: Position, content: Content): string {
  return `id: ${idOf(position)}\nevent: ${content.event}\ndata: ${content.data}\n\n`;
}

/** The block that tells a client to read everything anew. */
export function resetBlock(position: Position, reason: string): string {
  return `id: ${idOf(position)}\nevent: reset\ndata: ${JSON.stringify({ reason })}\n\n`;
}

/**
 * A block that dispatches nothing, but moves the client's last event id: the id is taken
 * over at the blank line, before empty data ends the dispatch (WHATWG HTML, section 9.2.6).
 */
export function positionBlock(position: Position, comment: string, retryMs?: number): string {
  const retry = retryMs === undefined ? "" : `retry: ${retryMs}\n`;
  return `${retry}: ${comment}\nid: ${idOf(position)}\n\n`;
}

function fieldsOf(event: string, rest: Record<string, unknown>): Record<string, unknown> {
  if (event === "new_drop") return { drop_id: rest["drop_id"], created_at: rest["created_at"] };
  if (event === "drop_deleted") return { drop_id: rest["drop_id"] };
  return rest;
}

function parse(body: Uint8Array): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(decoder.decode(body));
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}
