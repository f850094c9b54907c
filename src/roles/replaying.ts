import { createReadStretch } from "../consistency/redis-loss/log.nats.js";
import type { ReadStretch, Stretch } from "../consistency/redis-loss/ports.js";
import { type ReplayOptions, replay } from "../consistency/redis-loss/replay.js";
import { parseStored, type TimelineEvent } from "../contracts/events.js";
import type { Delivery } from "../delivery/handler.js";
import type { Connections } from "./connections.js";

/** How a stretch is read and applied where not as usual. */
export interface ReplayingOptions extends ReplayOptions {
  readonly readStretch?: ReadStretch;
  /** Wraps what applies an event. */
  readonly around?: (apply: Apply) => Apply;
}

/** Applies one event of the log. */
export type Apply = (event: Delivery) => Promise<void>;

/** Applies a stretch of the log again; resolves to how many events that were. */
export type Replaying = (stretch: Stretch, options?: ReplayingOptions) => Promise<number>;

/** Applies one event of the log again, without notifying anybody. */
export type ApplyLogged = (event: TimelineEvent, of: { readonly time: number }) => Promise<void>;

/** Replays through what is under the handlers of fan-out: a replay that has ended has been applied. */
export function createReplaying({ nats }: Pick<Connections, "nats">, applyLogged: ApplyLogged): Replaying {
  const readWhole = createReadStretch(nats);
  const apply: Apply = async (event) => applyLogged(parseStored(event.subject, event.body, event.time), event);
  return (stretch, { readStretch = readWhole, around = unchanged, ...options } = {}) =>
    replay({ readStretch, apply: around(apply) }, stretch, options);
}

const unchanged = (apply: Apply): Apply => apply;
