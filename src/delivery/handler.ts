import type { Logger } from "../kernel/logger.js";

/** Headers of a message. A missing one is undefined. */
export interface Headers {
  get(name: string): string | undefined;
  entries(): Iterable<readonly [string, string]>;
}

/** One message as a stream delivers it. */
export interface Delivery {
  readonly stream: string;
  readonly consumer: string;
  readonly seq: number;
  /** When the stream stored it, in ms since the epoch. */
  readonly time: number;
  readonly subject: string;
  readonly headers: Headers;
  readonly body: Uint8Array;
  /** How often the server delivered it, this time included. Outages and deploys raise it: it counts no failures. */
  readonly deliveries: number;
}

export interface Context {
  /** Aborts when the process begins to shut down: waiting must end then. */
  readonly stopping: AbortSignal;
  readonly log: Logger;
}

/** Handles one message: returns when everything is applied, throws otherwise. Acks nothing itself. */
export type Handler = (delivery: Delivery, context: Context) => Promise<void>;

export type Outcome =
  | { readonly kind: "ack" }
  /** Deliver it again after this time. */
  | { readonly kind: "retry"; readonly delayMs: number }
  /** Deliver it again at once, elsewhere: this process is shutting down. */
  | { readonly kind: "release" };

/** Takes one message to its outcome; see `process.ts`. */
export type Process = (delivery: Delivery, context: Context) => Promise<Outcome>;
