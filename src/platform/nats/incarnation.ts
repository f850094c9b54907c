/** The consumer that messages are pulled from. */
export interface Source {
  /** When it was created; another of its name has another. */
  readonly created: string;
  /** Aborts once it is gone: what it handed out cannot be acked any more, and must not keep the slots. */
  readonly gone: AbortController;
}

/** Which creation of a stream or consumer is worked with; unknown while it may have been replaced. */
export class Incarnation {
  #name: string | undefined;
  #waiting: (() => void)[] = [];

  set(name: string): void {
    this.#name = name;
    for (const go of this.#waiting.splice(0)) go();
  }

  doubt(): void {
    this.#name = undefined;
  }

  /** Waits while it is in doubt; undefined where the signal aborts before it is known. */
  async known(signal: AbortSignal): Promise<string | undefined> {
    while (this.#name === undefined && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const go = (): void => {
          signal.removeEventListener("abort", go);
          resolve();
        };
        signal.addEventListener("abort", go, { once: true });
        this.#waiting.push(go);
      });
    }
    return this.#name;
  }
}
