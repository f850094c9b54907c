import { type Loop, startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";

const ASK_AGAIN_MS = SECOND / 4;

interface Asking {
  /** Asks the server, and hands the answer to `answered`. Rejects while the server is unavailable. */
  readonly ask: () => Promise<unknown>;
  /** Another incarnation was found, or the same one after a suspicion: messages may have been missed. */
  readonly onGap: () => void;
}

/** Tells a stream or consumer from a later one of the same name, which has another time of creation. */
export class Incarnation {
  /** The stream was created at this time, in ms since the epoch; undefined while it may have been replaced. */
  current: number | undefined;
  #suspicions = 0;
  #waiting: (() => void)[] = [];
  #loop: Loop | undefined;
  #closed = false;

  /** The caller of `suspect` asks the server and calls `settle` if `asking` is unset. */
  constructor(private readonly asking?: Asking) {}

  settle(createdAt: number): void {
    const before = this.current;
    this.current = createdAt;
    for (const go of this.#waiting.splice(0)) go();
    if (before !== undefined && before !== createdAt) this.asking?.onGap();
  }

  /** The returned function takes the answer to a question asked now; a suspicion since then makes it void. */
  answered(): (createdAt: number) => void {
    const suspicions = this.#suspicions;
    return (createdAt) => {
      if (suspicions === this.#suspicions) this.settle(createdAt);
    };
  }

  suspect(): void {
    this.#suspicions++;
    this.current = undefined;
    if (this.asking && !this.#closed)
      this.#loop ??= startLoop({ everyMs: ASK_AGAIN_MS, work: () => this.#askOnce(this.asking as Asking) });
  }

  /** Resolves with `current` once there is one, or with undefined if the signal aborts. */
  async known(signal: AbortSignal): Promise<number | undefined> {
    while (this.current === undefined && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const go = (): void => {
          signal.removeEventListener("abort", go);
          resolve();
        };
        signal.addEventListener("abort", go, { once: true });
        this.#waiting.push(go);
      });
    }
    return this.current;
  }

  close(): void {
    this.#closed = true;
    void this.#loop?.close();
  }

  async #askOnce({ ask, onGap }: Asking): Promise<void> {
    await ask();
    if (this.current === undefined || this.#closed) return;
    void this.#loop?.close();
    this.#loop = undefined;
    onGap();
  }
}
