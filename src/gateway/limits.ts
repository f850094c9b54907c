import { AppError } from "../kernel/errors.js";
import { HOUR, MINUTE, SECOND } from "../kernel/time.js";

/** A span of ms to choose from at random. */
export type Span = readonly [from: number, to: number];

/** Bounds and intervals of the gateway. */
export interface GatewayLimits {
  /** Streams of one user in this process. */
  readonly connectionsPerUser: number;
  /** Streams in this process. */
  readonly connections: number;
  /** Bytes that may wait for a reader before it is cut off. */
  readonly maxBufferedBytes: number;
  /** How long a reader may leave anything waiting. */
  readonly stallMs: number;
  readonly heartbeatMs: Span;
  readonly retryMs: Span;
  /** A stream ends after this, give or take a fifth. */
  readonly maxLifeMs: number;
  readonly renewMs: number;
  readonly registrationTtlMs: number;
  readonly sweepMs: number;
  /** How long after their last stream people still get notifications stored: fan-out's window, and NOTIFY's age. */
  readonly windowMs: number;
  /** Over how long streams are ended at most when the process stops. */
  readonly drainMs: number;
}

export const DEFAULT_LIMITS: GatewayLimits = {
  connectionsPerUser: 20,
  connections: 20_000,
  maxBufferedBytes: 1024 * 1024,
  stallMs: 30 * SECOND,
  heartbeatMs: [10 * SECOND, 13 * SECOND],
  retryMs: [2 * SECOND, 5 * SECOND],
  maxLifeMs: HOUR,
  renewMs: 10 * SECOND,
  registrationTtlMs: MINUTE,
  sweepMs: MINUTE,
  windowMs: 10 * MINUTE,
  drainMs: 5 * SECOND,
};

/** Timers take no more than this. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** A random number of ms out of a span. */
export function within([from, to]: Span): number {
  return Math.round(from + Math.random() * (to - from));
}

/** What a timer may be set to. */
export function timerMs(ms: number): number {
  return Math.max(0, Math.min(ms, LONGEST_TIMER_MS));
}

/** Counts streams, by user and in all. */
export class Admission {
  readonly #byUser = new Map<string, number>();
  #all = 0;

  constructor(private readonly limits: Pick<GatewayLimits, "connections" | "connectionsPerUser">) {}

  get size(): number {
    return this.#all;
  }

  /**
   * Takes a place; returns how to give it back.
   *
   * @throws AppError `exhausted` where the user has too many streams, `unavailable` where the process has.
   */
  enter(user: string): () => void {
    const held = this.#byUser.get(user) ?? 0;
    if (held >= this.limits.connectionsPerUser) throw new AppError("exhausted", "too many event streams of this user");
    if (this.#all >= this.limits.connections) throw new AppError("unavailable", "too many event streams here");
    this.#byUser.set(user, held + 1);
    this.#all++;
    return () => this.#leave(user);
  }

  #leave(user: string): void {
    const held = this.#byUser.get(user) ?? 1;
    if (held > 1) this.#byUser.set(user, held - 1);
    else this.#byUser.delete(user);
    this.#all--;
  }
}
