import { pause } from "./time.js";

/** Lets background work of a process wait until no foreground work is under way. */
export class Foreground {
  #underWay = 0;
  #ended = new AbortController();

  /** @param maxWaitMs background work waits no longer */
  constructor(private readonly maxWaitMs: number) {}

  async run<T>(work: () => Promise<T>): Promise<T> {
    this.#underWay++;
    try {
      return await work();
    } finally {
      if (--this.#underWay === 0) {
        this.#ended.abort();
        this.#ended = new AbortController();
      }
    }
  }

  async untilIdle(): Promise<void> {
    if (this.#underWay > 0) await pause(this.maxWaitMs, this.#ended.signal);
  }
}
