import { type Loop, startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";

const ASK_AGAIN_MS = SECOND / 4;

interface Asking {
  /** Asks the server, and hands the answer to `answered`. Rejects while the server is unavailable. */
  readonly ask: () => Promise<unknown>;
  /** Another incarnation was found, or the same one after a suspicion: messages may have been missed. */
  readonly onGap: () => void;
}

/** Tells a stream from a later one of the same name, which has another time of creation. */
export class Incarnation {
  /** The stream was created at this time, in ms since the epoch; undefined while it may have been replaced. */
  current: number | undefined;
  #suspicions = 0;
  #loop: Loop | undefined;
  #closed = false;

  constructor(private readonly asking: Asking) {}

  /** The returned function takes the answer to a question asked now; a suspicion since then makes it void. */
  answered(): (createdAt: number) => void {
    const suspicions = this.#suspicions;
    return (createdAt) => {
      if (suspicions !== this.#suspicions) return;
      const before = this.current;
      this.current = createdAt;
      if (before !== undefined && before !== createdAt) this.asking.onGap();
    };
  }

  suspect(): void {
    this.#suspicions++;
    this.current = undefined;
    if (!this.#closed) this.#loop ??= startLoop({ everyMs: ASK_AGAIN_MS, work: () => this.#askOnce() });
  }

  close(): void {
    this.#closed = true;
    void this.#loop?.close();
  }

  async #askOnce(): Promise<void> {
    await this.asking.ask();
    if (this.current === undefined || this.#closed) return;
    void this.#loop?.close();
    this.#loop = undefined;
    this.asking.onGap();
  }
}
