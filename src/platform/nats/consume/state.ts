import type { JsMsg } from "nats";
import type { Context } from "../../../delivery/handler.js";

/** A consumer as long as it exists; one that is created again under its name is another source. */
export interface Source {
  readonly createdAt: number;
  /** Aborts once the consumer is gone: its messages cannot be acked any more, and must not keep the slots. */
  readonly gone: AbortController;
  readonly context: Context;
  /** A message that comes again meanwhile is not handled twice at once: its first handling would count as lost. */
  readonly latest: Map<number, JsMsg>;
  /** The consumer's own sequence of the newest delivery. */
  delivered: number;
}

// The states of a consumption, and what leads out of each:
//
// seeking   No pull is open. The loop asks for the consumer each second, and pulls once it has a creation time.
// pulling   The consumer is known: its messages are taken, and their acks go out.
// doubting  The consumer may be gone or replaced: the link broke or came back, NATS announced a deletion, nobody answered
//           a pull, or deliveries count anew. The pull stays open and work goes on, but acks wait. If NATS names the same
//           creation time, they go out; if it names another, they are dropped. Without an answer the pull ends.
// draining  The process closes. Nothing is begun any more, and work in hand is acked, unless a doubt arises.
// ended     The process closes without an answer: acks are dropped, and NATS delivers the messages again.
//
// confirm   NATS has answered, and nothing has happened since it was asked.
// doubt     See `doubting`. A doubt during another one makes the answer to the question before it void.
// stop      The pull has ended.
// close     The process begins to close.
//
// An ack names a message by its sequences only. In a stream that was created again the same sequences name another message,
// which the ack would remove unhandled: so acks are sent for the current source only, and while nothing casts doubt on it.
const STATES = {
  seeking: { acks: "wait", confirm: "pulling", doubt: "seeking", stop: "seeking", close: "ended" },
  pulling: { acks: "send", confirm: undefined, doubt: "doubting", stop: "seeking", close: "draining" },
  doubting: { acks: "wait", confirm: "pulling", doubt: "doubting", stop: "seeking", close: "ended" },
  draining: { acks: "send", confirm: undefined, doubt: "ended", stop: "draining", close: "draining" },
  ended: { acks: "drop", confirm: undefined, doubt: "ended", stop: "ended", close: "ended" },
} as const;

export type State = keyof typeof STATES;
export type Happening = "confirm" | "doubt" | "stop" | "close";

export class ConsumeState {
  /** The consumer whose messages are taken and acked. */
  source: Source | undefined;
  /** Number of happenings so far: an answer counts only if there was none since the question. */
  steps = 0;
  #state: State = "seeking";
  #waiting: (() => void)[] = [];

  get current(): State {
    return this.#state;
  }

  get isPulling(): boolean {
    return this.#state === "pulling" || this.#state === "doubting";
  }

  get isClosing(): boolean {
    return this.#state === "draining" || this.#state === "ended";
  }

  on(happening: Happening): void {
    const next = STATES[this.#state][happening];
    if (next === undefined) throw new Error(`${happening} is impossible in ${this.#state}`);
    this.#state = next;
    this.steps++;
    for (const go of this.#waiting.splice(0)) go();
  }

  confirm(source: Source): void {
    this.on("confirm");
    if (source !== this.source) this.source?.gone.abort();
    this.source = source;
  }

  /** The consumer is gone: what waits to be acked is dropped. */
  abandon(): void {
    this.source?.gone.abort();
    this.source = undefined;
    this.on("doubt");
  }

  /** Resolves once it is known whether acks of this source may be sent. */
  async mayAck(source: Source): Promise<boolean> {
    while (source === this.source && STATES[this.#state].acks === "wait")
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return source === this.source && STATES[this.#state].acks === "send";
  }
}
