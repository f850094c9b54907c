import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

export interface SseLimits {
  /** Maximum number of bytes that wait for a client. Above it the client is disconnected. */
  readonly maxBufferedBytes: number;
  readonly stallMs: number;
}

const KIND = {
  "Content-Type": "text/event-stream; charset=utf-8",
  "Cache-Control": "no-cache, no-transform",
  "X-Accel-Buffering": "no",
};

/** The type has to be named: a client that takes every type reads statuses. */
export function acceptsEventStream({ headers }: Pick<IncomingMessage, "headers">): boolean {
  return (headers.accept ?? "").split(",").some((range) => {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    return type === "text/event-stream" && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter));
  });
}

interface Refusal {
  readonly headers: Readonly<Record<string, string>>;
  readonly retryMs: number;
  readonly why: string;
}

/** The event stream ends at once: an EventSource comes back after it, and gives up at any status but 200. */
export function refuseForNow(response: ServerResponse, { headers, retryMs, why }: Refusal): void {
  response.writeHead(200, { ...headers, ...KIND });
  response.end(`retry: ${retryMs}\n: ${why}\n\n`);
}

/** Sends what was written in a turn of the event loop to all streams at its end. */
export class SendTurn {
  #streams: SseStream[] = [];

  add(stream: SseStream): void {
    if (this.#streams.push(stream) === 1) setImmediate(() => this.#sendAll());
  }

  #sendAll(): void {
    const streams = this.#streams;
    this.#streams = [];
    for (const stream of streams) stream.send();
  }
}

interface Opening {
  readonly turn: SendTurn;
  readonly headers: Readonly<Record<string, string>>;
  readonly first: string;
  /** Callback: called once, when the connection is gone. */
  closed(): void;
}

const LINGER_MS = 2_000;
/** More characters are not held back until the end of the turn. */
const MAX_HELD_CHARS = 32 * 1024;

/**
 * Blocks of one turn of the event loop leave in one write. After the first they go to the socket itself: the response
 * adds nothing to them, and its part of each write takes a tenth of an event.
 */
export class SseStream {
  /** The client was disconnected because it read too slowly. */
  slow = false;
  readonly #socket: Socket;
  readonly #turn: SendTurn;
  #over = false;
  #held = "";
  /** The time is of performance.now(), and 0 while the client reads. */
  #blockedSince = 0;
  #waiting: (() => void)[] | undefined;

  constructor(
    request: IncomingMessage,
    private readonly response: ServerResponse,
    private readonly limits: SseLimits,
    { turn, headers, first, closed }: Opening,
  ) {
    this.#socket = request.socket;
    this.#turn = turn;
    response.on("close", () => {
      this.#over = true;
      this.#resume();
      closed();
    });
    // A broken connection emits an error and then its close, which counts.
    response.on("error", () => undefined);
    this.#socket.on("drain", () => this.#resume());
    // The body ends with the connection: framing it as chunks costs a fifth of an event.
    response.removeHeader("Transfer-Encoding");
    response.writeHead(200, { ...headers, ...KIND, Connection: "close" });
    // A head that is sent for itself is kept as one string, else as two dozen.
    this.#socket.cork();
    response.flushHeaders();
    response.write(first);
    this.#socket.uncork();
    // The server keeps the request as long as its answer.
    request.headers = {};
    request.rawHeaders = [];
  }

  write(block: string): void {
    if (this.#over) return;
    if (this.#held === "") this.#turn.add(this);
    this.#held += block;
    if (this.#held.length > MAX_HELD_CHARS) this.send();
  }

  send(): void {
    if (this.#over || this.#held === "") return;
    const text = this.#held;
    this.#held = "";
    const bytes = Buffer.byteLength(text);
    const waiting = this.#socket.writableLength;
    if (waiting > 0 && waiting + bytes > this.limits.maxBufferedBytes) return this.#disconnect();
    // ASCII is the same in Latin-1, whose writes take a tenth less of an event.
    const encoding = bytes === text.length ? "latin1" : "utf8";
    if (!this.#socket.write(text, encoding)) this.#blockedSince ||= performance.now();
  }

  /** Disconnects a client that has read nothing for too long. */
  check(now: number): void {
    if (this.#blockedSince > 0 && now - this.#blockedSince > this.limits.stallMs) this.#disconnect();
  }

  /** True while the client has not read what was sent. */
  get isBlocked(): boolean {
    return !this.#over && this.#socket.writableNeedDrain;
  }

  async drained(): Promise<void> {
    if (this.#over || !this.#socket.writableNeedDrain) return;
    await new Promise<void>((resolve) => {
      this.#waiting ??= [];
      this.#waiting.push(resolve);
    });
  }

  end(): void {
    if (this.#over) return;
    this.send();
    if (this.#over) return;
    this.#over = true;
    this.response.end();
    const linger = setTimeout(() => this.response.destroy(), LINGER_MS);
    this.response.once("close", () => clearTimeout(linger));
  }

  #disconnect(): void {
    this.slow = true;
    this.#over = true;
    this.response.destroy();
  }

  #resume(): void {
    this.#blockedSince = 0;
    const waiting = this.#waiting;
    this.#waiting = undefined;
    for (const resolve of waiting ?? []) resolve();
  }
}
