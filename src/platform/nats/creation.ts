import { type Loop, startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";

const ASK_AGAIN_MS = SECOND / 4;

/** Follows which stream of a name exists: one that was deleted and made anew has another time of creation. */
export class StreamCreation {
  /** In ms since the epoch; undefined while in doubt. */
  current: number | undefined;
  #doubts = 0;
  #asking: Loop | undefined;
  #closed = false;

  constructor(
    private readonly ask: () => Promise<unknown>,
    private readonly onDoubt: () => void,
  ) {}

  /** Begins a look at the stream; the returned function takes its answer. A look from before a doubt settles nothing. */
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

/** The consumer that messages are pulled from. */
export interface Source {
  /** When it was created; another consumer of its name has another. */
  readonly created: string;
  /** Aborts once it is gone: its messages cannot be acked any more, and must not keep the slots. */
  readonly gone: AbortController;
}

/** Which creation of a consumer is in use; unknown while it may have been replaced. */
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

  /** Waits while it is in doubt; undefined where the signal aborts before it is known. */
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
