// The states of an event stream, and what leads out of each:
//
// opening     The client has got nothing. Live notifications are buffered while the start is looked for.
// relisted    As opening, but the registration was lost meanwhile and made again: the first block has a reset.
// catchingUp  NOTIFY is read after the position, up to the leader's last or to the first buffered notification. Those that
//             find no room in the buffer are read in another round.
// live        A live notification whose predecessor is not beyond the position is sent at once.
// ended       Nothing is sent or read any more.
//
// relist      The registration was lost and made again. A client that has its first block gets a reset.
// open        The first block is sent. The stream may have ended before.
// gap         The client lacks something. A live notification shows it, or the user's last sequence at the leader, which is
//             asked for after reconnects, and at heartbeats with no live notification lately.
// caughtUp    Nothing is buffered any more, or NATS does not answer: then the next heartbeat finds the gap again.
// end         The client is gone, or is disconnected.
const STATES = {
  opening: { relist: "relisted", open: "catchingUp", gap: undefined, caughtUp: undefined, end: "ended" },
  relisted: { relist: "relisted", open: "catchingUp", gap: undefined, caughtUp: undefined, end: "ended" },
  catchingUp: { relist: "catchingUp", open: undefined, gap: undefined, caughtUp: "live", end: "ended" },
  live: { relist: "live", open: undefined, gap: "catchingUp", caughtUp: undefined, end: "ended" },
  ended: { relist: "ended", open: "ended", gap: undefined, caughtUp: "ended", end: "ended" },
} as const;

export type State = keyof typeof STATES;
export type Happening = "relist" | "open" | "gap" | "caughtUp" | "end";

export class SessionState {
  #state: State = "opening";

  get current(): State {
    return this.#state;
  }

  on(happening: Happening): void {
    const next = STATES[this.#state][happening];
    if (next === undefined) throw new Error(`${happening} is impossible in ${this.#state}`);
    this.#state = next;
  }
}
