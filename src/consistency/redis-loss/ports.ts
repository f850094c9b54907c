import type { Delivery } from "../../delivery/handler.js";

/** Which streams the events and jobs are in, and how far they go. */
export interface LogMark {
  /** When `DROPS` and `FANOUT` were created; "" where one is missing. */
  readonly drops: string;
  readonly fanout: string;
  /** The last sequence of `DROPS`. It never goes back, unless the stream was restored from an older copy. */
  readonly last: number;
}

/** What the note in Redis says. */
export interface HeldNote {
  /** `broken`: the server is not the one that was written to; `new`: there is no note. */
  readonly redis: "same" | "broken" | "new";
  /** From when on events may not have been applied, in ms since the epoch. */
  readonly from: number;
  /** Undefined where there is no note, or an older version wrote it. */
  readonly log: LogMark | undefined;
  /** As in {@link Backlog}; 0 where that is not known. */
  readonly acked: number;
}

/** The note in Redis that says which servers hold the data, and how far the log is applied. */
export interface Continuity {
  read(): Promise<HeldNote>;
  /**
   * Notes how far the log is applied, and which streams that is about. Changes nothing where Redis is broken, unless
   * what was lost has been applied again (`mended`).
   */
  note(how: { readonly backlog: Backlog; readonly log: LogMark; readonly mended: boolean }): Promise<void>;
}

/** Looks which streams there are. */
export type ReadLogMark = () => Promise<LogMark>;

/** How far the log is applied. */
export interface Backlog {
  /** From when on admitted events may not have been applied by now, in ms since the epoch. */
  readonly start: number;
  /** Up to this sequence of `DROPS` all its consumers have acknowledged everything. */
  readonly acked: number;
}

export type ReadBacklog = () => Promise<Backlog>;

/** A stretch of the log, [from, to), by when events were admitted, in ms since the epoch. */
export interface Stretch {
  readonly from: number;
  readonly to?: number | undefined;
}

/** Takes an event; false: no more. Who hands it out may want to know when it was applied. */
export type Take = (event: Delivery, applied?: () => void) => Promise<boolean>;

/** Hands out the admitted events of a stretch, oldest first; ends early once `take` says false. */
export type ReadStretch = (stretch: Stretch, take: Take) => Promise<void>;
