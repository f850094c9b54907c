import type { IncomingMessage, ServerResponse } from "node:http";

export interface SseLimits {
  /** Bytes that may wait for a client before it is cut off. */
  readonly maxBufferedBytes: number;
  readonly stallMs: number;
}

const LINGER_MS = 2_000;

export function openSse(
  request: IncomingMessage,
  response: ServerResponse,
  limits: SseLimits,
  first: string,
): SseStream {
  const stream = new SseStream(response, limits);
  request.socket.setNoDelay(true);
  response.writeHead(200, {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    ...(request.httpVersion === "1.1" ? { Connection: "keep-alive" } : {}),
  });
  response.flushHeaders();
  stream.write(first);
  return stream;
}

export class SseStream {
  /** Resolves when the connection is gone; `slow` where it was cut off. */
  readonly closed: Promise<{ readonly slow: boolean }>;
  #slow = false;
  #over = false;
  #stalled: NodeJS.Timeout | undefined;
  #waiting: (() => void)[] = [];

  constructor(
    private readonly response: ServerResponse,
    private readonly limits: SseLimits,
  ) {
    response.on("drain", () => this.#settle());
    // A broken connection emits an error and then its close, which counts.
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
    if (waiting > 0 && waiting + Buffer.byteLength(block) > this.limits.maxBufferedBytes) return this.#cut();
    if (this.response.write(block)) return;
    this.#stalled ??= setTimeout(() => this.#cut(), this.limits.stallMs);
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
