import type { Delivery } from "../delivery/handler.js";

/** Whether the data in Redis descends unbroken from what was written to it. */
export interface Continuity {
  /**
   * Looks, and notes `from` where nothing is broken: the time (ms since the epoch) from when on events may not have
   * been applied by now. Resolves to the time to apply the log again from, or undefined where nothing was lost.
   */
  check(from: number | undefined): Promise<number | undefined>;
  /** Notes that what was lost has been applied again. */
  mended(from: number): Promise<void>;
}

/** A right that one process holds for a bounded time. */
export interface Lease {
  /** Takes or keeps it; false where another process has it. */
  hold(): Promise<boolean>;
  release(): Promise<void>;
}

/** From when on admitted events may not have been applied by now, in ms since the epoch. */
export type ReadBacklogStart = () => Promise<number>;

/** A stretch of the log, [from, to), by when events were admitted, in ms since the epoch. */
export interface Stretch {
  readonly from: number;
  readonly to?: number | undefined;
}

/** Takes an event; false: no more. Who hands it out may want to know when it was applied. */
export type Take = (event: Delivery, applied?: () => void) => Promise<boolean>;

/** Hands out the admitted events of a stretch, oldest first; ends early once `take` says false. */
export type ReadStretch = (stretch: Stretch, take: Take) => Promise<void>;
