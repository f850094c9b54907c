import type { IncomingMessage, ServerResponse } from "node:http";

/** Bounds of one event stream. */
export interface SseOptions {
  readonly headers: Readonly<Record<string, string>>;
  /** Bytes that may wait for a reader before it counts as too slow. */
  readonly maxBufferedBytes: number;
  /** How long a reader may leave anything waiting. */
  readonly stallMs: number;
}

/** One open response of Server-Sent Events. */
export interface SseStream {
  /** Sends a block as it is; a reader that is too slow is cut off instead. */
  write(block: string): void;
  /** Resolves when nothing waits any more, or the stream is closed. */
  drained(): Promise<void>;
  /** Ends the stream in order; what waits is still sent, for a moment. */
  end(): void;
  /** Resolves when the connection is gone, with whether it was cut off for being slow. */
  readonly closed: Promise<{ readonly slow: boolean }>;
}

/** A reader that does not take the end of a stream is cut off after this long. */
const LINGER_MS = 2_000;

/** Sends the head of an event stream and its first block. */
export function openSse(
  request: IncomingMessage,
  response: ServerResponse,
  options: SseOptions,
  first: string,
): SseStream {
  const stream = new Stream(response, options);
  request.socket.setNoDelay(true);
  response.writeHead(200, {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    ...(request.httpVersion === "1.1" ? { Connection: "keep-alive" } : {}),
    ...options.headers,
  });
  response.flushHeaders();
  stream.write(first);
  return stream;
}

class Stream implements SseStream {
  readonly closed: Promise<{ readonly slow: boolean }>;
  #slow = false;
  #over = false;
  #stalled: NodeJS.Timeout | undefined;
  #waiting: (() => void)[] = [];

  constructor(
    private readonly response: ServerResponse,
    private readonly options: SseOptions,
  ) {
    response.on("drain", () => this.#settle());
    // A connection that breaks says so by an error first; its close is what counts.
    response.on("error", () => undefined);
    this.closed = new Promise((resolve) => {
      const close = (): void => {
        this.#over = true;
        this.#settle();
        resolve({ slow: this.#slow });
      };
      if (response.destroyed || response.socket?.destroyed !== false) close();
      else response.once("close", close);
    });
  }

  write(block: string): void {
    if (this.#over) return;
    const waiting = this.response.writableLength;
    if (waiting > 0 && waiting + Buffer.byteLength(block) > this.options.maxBufferedBytes) return this.#cut();
    if (this.response.write(block)) return;
    this.#stalled ??= setTimeout(() => this.#cut(), this.options.stallMs);
  }

  async drained(): Promise<void> {
    if (this.#over || !this.response.writableNeedDrain) return;
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  end(): void {
    if (this.#over) return;
    this.#over = true;
    this.response.end();
    const linger = setTimeout(() => this.response.destroy(), LINGER_MS);
    this.response.once("close", () => clearTimeout(linger));
  }

  #cut(): void {
    this.#slow = true;
    this.#over = true;
    this.response.destroy();
  }

  #settle(): void {
    clearTimeout(this.#stalled);
    this.#stalled = undefined;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
