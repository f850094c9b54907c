import type { Logger } from "../kernel/logger.js";
import type { Headers } from "../telemetry/spans.js";

export interface Delivery {
  readonly stream: string;
  readonly consumer: string;
  readonly seq: number;
  /** Time at which the stream stored the message, ms since the epoch. */
  readonly time: number;
  readonly subject: string;
  readonly headers: Headers;
  readonly body: Uint8Array;
  /** Outages and deploys raise it: it counts no failures. */
  readonly deliveries: number;
}

export interface Context {
  /** Aborts when the process begins to shut down: waiting must end then. */
  readonly stopping: AbortSignal;
  /** Number of attempts, this one included; unset if they are not counted. */
  readonly attempt?: number;
  /** A batch calls this to let the next one begin, when what is left of it keeps no other waiting. */
  readonly beginNext?: () => void;
  readonly log: Logger;
}

/** Returns when everything is applied, throws otherwise. Acks nothing itself. */
export type Handler = (delivery: Delivery, context: Context) => Promise<void>;

/**
 * Handles messages that are delivered for the first time, and returns those it leaves to be handled one by one. If
 * it throws, all of them are.
 */
export type BatchHandler = (deliveries: readonly Delivery[], context: Context) => Promise<readonly Delivery[]>;

export interface Handlers {
  readonly single: Handler;
  readonly batch: BatchHandler;
}

export type DeliveryOutcome =
  | { readonly kind: "ack" }
  | { readonly kind: "retry"; readonly delayMs: number }
  /** Another process is to take the message, since this one is shutting down. */
  | { readonly kind: "release" };

export type Process = (delivery: Delivery, context: Context) => Promise<DeliveryOutcome>;

/** Never rejects. Returns the messages that are to be processed one by one; the others are done. */
export type ProcessBatch = (deliveries: readonly Delivery[], context: Context) => Promise<readonly Delivery[]>;
