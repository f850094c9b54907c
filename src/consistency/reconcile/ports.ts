import type { TimelineEvent } from "../../contracts/events.js";

/** A stretch of wall-clock time, [since, until), in ms since the epoch. */
export interface Window {
  readonly since: number;
  readonly until: number;
}

/** What the upstreams say has changed in a window, in any order. Yields nothing where an upstream cannot tell. */
export type ReadChanges = (window: Window) => AsyncIterable<TimelineEvent>;

/** Hands out the message ids of what the log was given in a window; stops early once `take` says false. */
export type ReadAdmitted = (window: Window, take: (messageId: string) => boolean) => Promise<void>;

/** Admits an event; resolves after its PubAck. A silent one is told to nobody. */
export type Admit = (event: TimelineEvent, silent: boolean) => Promise<void>;
