import { pause, SECOND } from "../../kernel/time.js";

const ASK_AGAIN_MS = SECOND / 4;

/** Follows which stream of a name is there: one that was deleted and made anew was created at another time. */
export class Creation {
  /** When it was created, in ms since the epoch; undefined while that is in doubt. */
  current: number | undefined;
  #doubts = 0;
  #asking = false;
  readonly #closing = new AbortController();

  constructor(
    private readonly ask: () => Promise<unknown>,
    private readonly onDoubt: () => void,
  ) {}

  /** Begins a look at the stream; what is returned takes its answer. One from before a doubt settles nothing. */
  asked(): (createdAt: number) => void {
    const doubts = this.#doubts;
    return (createdAt) => {
      if (doubts !== this.#doubts) return;
      const before = this.current;
      this.current = createdAt;
      if (before !== undefined && before !== createdAt) this.onDoubt();
    };
  }

  /** It may have been replaced: asks until there is an answer, and says so then. */
  doubt(): void {
    this.#doubts++;
    this.current = undefined;
    if (!this.#asking) void this.#untilKnown();
  }

  close(): void {
    this.#closing.abort();
  }

  async #untilKnown(): Promise<void> {
    const { signal } = this.#closing;
    this.#asking = true;
    while (this.current === undefined && !signal.aborted) {
      await this.ask().catch(() => undefined);
      if (this.current === undefined) await pause(ASK_AGAIN_MS, signal);
    }
    this.#asking = false;
    if (!signal.aborted) this.onDoubt();
  }
}
