import { pause } from "./time.js";

/** Work of a process that goes first, and other work that begins a piece while none of it is under way. */
export class Precedence {
  #underWay = 0;
  #ended = new AbortController();

  /** @param patienceMs after which other work begins all the same */
  constructor(private readonly patienceMs: number) {}

  async first<T>(work: () => Promise<T>): Promise<T> {
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

  async turn(): Promise<void> {
    if (this.#underWay > 0) await pause(this.patienceMs, this.#ended.signal);
  }
}
