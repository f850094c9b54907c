import { MINUTE, SECOND } from "../kernel/time.js";
import type { WaitingEvent } from "../state/index.js";

/** Maximum time of all attempts at an event and the pauses between them, unless the event is noted as waiting. */
export const HANDLED_MS = 2 * MINUTE;
/** Minimum time between the looks that are kept. */
const APART_MS = SECOND;

/** State of a consumer, as NATS returns it. */
interface Look {
  readonly name: string;
  readonly created: string;
  readonly delivered: { readonly stream_seq: number };
  readonly ack_floor: { readonly stream_seq: number };
  readonly num_ack_pending: number;
}

interface Seen {
  readonly created: string;
  readonly delivered: readonly { readonly seq: number; readonly at: number }[];
  readonly noted: ReadonlyMap<number, { readonly event: WaitingEvent; readonly at: number }>;
}

/** All events up to `acked` are applied, or wait. */
interface Acked {
  readonly acked: number;
  readonly waiting: readonly WaitingEvent[];
}

/**
 * Tells events that wait for a single user from others. NATS does not return which messages are not acknowledged, only
 * how many, and up to which all are: while an event waits, that floor stays below it. If a consumer has no other
 * events, the waiting ones are known. Under steady traffic it always has others: then an event counts as applied once
 * an earlier look has seen it delivered long enough ago.
 */
export class Looks {
  readonly #seen = new Map<string, Seen>();

  constructor(private readonly handledMs = HANDLED_MS) {}

  /** Adds a look. `waiting` is noted for this consumer; `now` is a time of performance.now(). */
  add(look: Look, waiting: readonly WaitingEvent[], now = performance.now()): Acked {
    const [floor, { stream_seq: delivered }] = [look.ack_floor.stream_seq, look.delivered];
    const before = this.#seen.get(look.name);
    const seen = before?.created === look.created ? before : { created: look.created, delivered: [], noted: new Map() };
    const since = now - this.handledMs;
    // An event that was noted lately may be under way again.
    const noted = [...seen.noted].filter(([seq, { at: time }]) => time >= since && seq > floor);
    const all = new Map([...noted, ...waiting.map((event) => [event.seq, { event, at: now }] as const)]);
    const old = seen.delivered.findLastIndex(({ at: time }) => time <= since);
    const isNext = (seen.delivered.at(-1)?.at ?? Number.NEGATIVE_INFINITY) <= now - Math.min(APART_MS, this.handledMs);
    const looks = [...seen.delivered.slice(Math.max(0, old)), ...(isNext ? [{ seq: delivered, at: now }] : [])];
    this.#seen.set(look.name, { created: look.created, delivered: looks, noted: all });
    if (waiting.length > 0 && look.num_ack_pending === waiting.length) return { acked: delivered, waiting };
    const handled = seen.delivered[old]?.seq ?? 0;
    if (all.size === 0 || handled <= floor) return { acked: floor, waiting };
    return { acked: handled, waiting: [...all.values()].map(({ event }) => event) };
  }
}
