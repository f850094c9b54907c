import pLimit from "p-limit";

/** For messages that may have ended a process: one at a time holds it. It is given in the order in which it was asked for. */
export class SuspectLock {
  readonly #limit = pLimit(1);

  /** Resolves with a function that gives it up; later calls of that do nothing. */
  acquire(): Promise<() => void> {
    return new Promise((acquired) => void this.#limit(() => new Promise<void>((release) => acquired(release))));
  }
}
