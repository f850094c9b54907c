import pLimit from "p-limit";

/**
 * One at a time of the messages that may have ended a process holds this lock. It is given in the order of the calls.
 */
export class SuspectLock {
  readonly #limit = pLimit(1);

  /** Resolves with a function that gives it up; later calls of that do nothing. */
  acquire(): Promise<() => void> {
    return new Promise((acquired) => void this.#limit(() => new Promise<void>((release) => acquired(release))));
  }
}
