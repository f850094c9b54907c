import { get, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { createParser } from "eventsource-parser";
import { eventually } from "./eventually.js";
import { checkEvent } from "./openapi.js";
import { tokenOf } from "./tokens.js";

/** An event as it came over the wire. */
export type WireEvent = {
  readonly id: string | undefined;
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly atMs: number;
};

/** An open stream of events. */
export type EventStream = {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly events: readonly WireEvent[];
  readonly comments: readonly string[];
  /** The bytes so far. */
  raw(): string;
  /** The last `id:` seen, as a browser would send it back. */
  lastId(): string;
  retryMs(): number | undefined;
  /** Settles once the server ended the stream. */
  readonly ended: Promise<void>;
  isOver(): boolean;
  /** Drops of `new_drop` events, in the order they came. */
  drops(): string[];
  /** Waits for an event of this kind. */
  waitFor(event: string, patienceMs?: number): Promise<WireEvent>;
  close(): void;
};

/** Options of a request for a stream. */
export type StreamRequest = {
  readonly token?: string;
  readonly lastEventId?: string;
  /** Default: home. */
  readonly timeline?: "home" | "local" | "global" | `list/${string}`;
  readonly headers?: Readonly<Record<string, string>>;
};

/** Opens a user's stream and waits for its first bytes. */
export async function openEvents(httpUrl: string, user: string, lastEventId?: string): Promise<EventStream> {
  const stream = await requestEvents(httpUrl, {
    token: await tokenOf(user),
    ...(lastEventId === undefined ? {} : { lastEventId }),
  });
  if (stream.status !== 200) throw new Error(`the stream was refused: ${stream.status} ${stream.raw()}`);
  await eventually(() => stream.raw().includes("\n\n"), "the first bytes of the stream");
  return stream;
}

/** Asks for a stream; whatever the answer is, it is returned once its headers are there. */
export async function requestEvents(httpUrl: string, request: StreamRequest): Promise<EventStream> {
  const headers = {
    accept: "text/event-stream",
    ...(request.token === undefined ? {} : { authorization: `Bearer ${request.token}` }),
    ...(request.lastEventId === undefined ? {} : { "last-event-id": request.lastEventId }),
    ...request.headers,
  };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    get(`${httpUrl}/events/timeline/${request.timeline ?? "home"}`, { headers, agent: false }, resolve).once(
      "error",
      reject,
    );
  });
  return follow(response);
}

/** Reads what an answer streams, and parses it where it is a stream of events. */
export function follow(response: IncomingMessage): EventStream {
  const events: WireEvent[] = [];
  const comments: string[] = [];
  let text = "";
  let retry: number | undefined;
  let over = false;
  const parser = createParser({
    onEvent: ({ id, event = "message", data }) => {
      const fields = JSON.parse(data) as Record<string, unknown>;
      checkEvent(event, fields);
      events.push({ id, event, data: fields, atMs: Date.now() });
    },
    onRetry: (value) => {
      retry = value;
    },
    onComment: (comment) => void comments.push(comment),
  });
  response.setEncoding("utf8");
  response.on("data", (chunk: string) => {
    text += chunk;
    if (response.statusCode === 200) parser.feed(chunk);
  });
  response.on("error", () => undefined);
  const ended = new Promise<void>((resolve) => {
    response.once("close", () => {
      over = true;
      resolve();
    });
  });
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    events,
    comments,
    raw: () => text,
    lastId: () => lastIdIn(text),
    retryMs: () => retry,
    ended,
    isOver: () => over,
    drops: () => events.filter(({ event }) => event === "new_drop").map(({ data }) => String(data.drop_id)),
    waitFor: async (event, patienceMs) => {
      await eventually(() => events.some((seen) => seen.event === event), `an event ${event}`, patienceMs);
      return events.find((seen) => seen.event === event) as WireEvent;
    },
    close: () => response.destroy(),
  };
}

/** An id counts once its block is complete, also where the block carries no data. */
function lastIdIn(text: string): string {
  const complete = text.slice(0, text.lastIndexOf("\n\n") + 1);
  return [...complete.matchAll(/^id: ?(.*)$/gm)].at(-1)?.[1] ?? "";
}
