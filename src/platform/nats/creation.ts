import { type Loop, startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";

const ASK_AGAIN_MS = SECOND / 4;

/** A stream that was deleted and made anew has another time of creation. */
export class StreamCreation {
  /** ms since the epoch; undefined while in doubt. */
  current: number | undefined;
  #doubts = 0;
  #asking: Loop | undefined;
  #closed = false;

  constructor(
    private readonly ask: () => Promise<unknown>,
    private readonly onDoubt: () => void,
  ) {}

  /** The returned function takes the answer; one asked for before a doubt settles nothing. */
  asked(): (createdAt: number) => void {
    const doubts = this.#doubts;
    return (createdAt) => {
      if (doubts !== this.#doubts) return;
      const before = this.current;
      this.current = createdAt;
      if (before !== undefined && before !== createdAt) this.onDoubt();
    };
  }

  /** The stream may have been replaced: asks until there is an answer, then calls `onDoubt`. */
  doubt(): void {
    this.#doubts++;
    this.current = undefined;
    if (!this.#closed) this.#asking ??= startLoop({ everyMs: ASK_AGAIN_MS, work: () => this.#askOnce() });
  }

  close(): void {
    this.#closed = true;
    void this.#asking?.close();
  }

  async #askOnce(): Promise<void> {
    await this.ask();
    if (this.current === undefined || this.#closed) return;
    void this.#asking?.close();
    this.#asking = undefined;
    this.onDoubt();
  }
}

export interface Source {
  readonly created: string;
  /** Aborts once the consumer is gone: its messages cannot be acked any more, and must not keep the slots. */
  readonly gone: AbortController;
}

export class ConsumerCreation {
  current: string | undefined;
  #waiting: (() => void)[] = [];

  set(name: string): void {
    this.current = name;
    for (const go of this.#waiting.splice(0)) go();
  }

  doubt(): void {
    this.current = undefined;
  }

  async known(signal: AbortSignal): Promise<string | undefined> {
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
}
