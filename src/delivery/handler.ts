import type { Logger } from "../kernel/logger.js";

/** Headers of a message. A missing one is undefined. */
export interface Headers {
  get(name: string): string | undefined;
  entries(): Iterable<readonly [string, string]>;
}

/** One message as a stream hands it out. */
export interface Delivery {
  readonly stream: string;
  readonly consumer: string;
  readonly seq: number;
  /** When the stream stored it, in ms since the epoch. */
  readonly time: number;
  readonly subject: string;
  readonly headers: Headers;
  readonly body: Uint8Array;
  /** How often the server handed it out, this time included. Outages and deploys raise it for the innocent. */
  readonly deliveries: number;
}

/** What a handler works with beside the message. */
export interface Context {
  /** Aborts when the process begins to shut down: who only waits should stop waiting. */
  readonly stopping: AbortSignal;
  readonly log: Logger;
}

/** Handles one message: returns when everything is applied, throws when not. Acks nothing itself. */
export type Handler = (delivery: Delivery, context: Context) => Promise<void>;

/** What becomes of a message. */
export type Outcome =
  | { readonly kind: "ack" }
  /** Hand it out again after this time. */
  | { readonly kind: "retry"; readonly delayMs: number }
  /** Hand it out again at once, elsewhere: this process is shutting down. */
  | { readonly kind: "release" };
