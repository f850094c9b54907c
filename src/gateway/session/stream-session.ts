import type { FeedState } from "../feed.nats.js";
import type { Registration } from "../registry.js";
import type { StreamRequest } from "../routes.http.js";
import type { Start } from "./catch-up.js";

export type StreamSink = Pick<ReturnType<StreamRequest["open"]>, "write" | "drained" | "isBlocked">;

/** The events that one stream sends, and their positions. */
export interface StreamSession extends Registration {
  readonly sent: number;
  /** A live notification last showed at this performance.now() that none before it was missed. */
  readonly heardAt: number;
  /** Finds the start, and sends nothing. `tail`: the end of NOTIFY before the session followed it. */
  prepare(lastEventId: string | undefined, tail: FeedState | undefined): Promise<Start>;
  /** Returns the first block, in the turn of {@link start}. */
  greeting(retryMs: number, start: Start): string;
  start(sink: StreamSink, start: Start): Promise<void>;
  /** Looks for missed notifications, unless a live one came in the last `heardMs`. */
  recheck(options: { readonly maxAgeMs: number; readonly heardMs: number }): Promise<void>;
  heartbeat(): void;
  end(): void;
}
