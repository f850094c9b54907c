import { bounded } from "./bounded.js";
import { errorOf, TimelineError } from "./errors.js";
import { type Block, EventParser } from "./parser.js";
import type { Send } from "./send.js";

export interface ConnectionOptions {
  readonly path: string;
  /** "": the stream resumes nothing. */
  readonly lastEventId: string;
  /** Time without a byte after which the connection is lost, ms. */
  readonly idleMs: number;
  readonly signal: AbortSignal;
  /** Callback: takes a block; the next one waits for its promise. */
  received(block: Block): Promise<void> | undefined;
  /** Callback: the server names the time before the next connection, ms. */
  retried(ms: number): void;
}

/** Reads a stream from one connection. Rejects when that is refused, lost or ended, with the reason. */
export async function readConnection(send: Send, options: ConnectionOptions): Promise<never> {
  const { path, lastEventId, idleMs, received, retried } = options;
  const headers = { accept: "text/event-stream", ...(lastEventId !== "" && { "last-event-id": lastEventId }) };
  return bounded({ signal: options.signal, ms: idleMs }, async (signal, clock) => {
    const response = await send(path, { headers, signal });
    if (!response.ok) throw await errorOf(response);
    // A page of a proxy, for instance of a login.
    const isStream = /^text\/event-stream\b/i.test(response.headers.get("content-type") ?? "");
    if (!isStream || !response.body) throw new TimelineError("the answer is no event stream");
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    const parser = new EventParser(retried);
    let isOpen = false;
    clock.start();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      clock.stop();
      for (const block of parser.feed(decoder.decode(part.value, { stream: true }))) {
        isOpen ||= block.id !== undefined;
        await received(block);
        signal.throwIfAborted();
      }
      clock.start();
    }
    // A refusal is a comment without an id.
    throw new TimelineError(isOpen || parser.comment === "" ? "the stream ended" : parser.comment);
  });
}
