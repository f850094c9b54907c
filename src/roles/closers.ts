import { oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";
import { type Clock, countdown, SECOND } from "../kernel/time.js";

/** `graceMs` is the time to finish what is in flight. */
type Close = (graceMs: number) => Promise<void> | void;

/** Each close has so long once the grace is over: most calls end within it. */
const LEAST_MS = SECOND;

export class Closers {
  current: string | undefined;
  readonly #closers: { readonly name: string; readonly close: Close }[] = [];
  #closing: Promise<boolean> | undefined;

  constructor(private readonly clock?: Clock) {}

  add(name: string, close: Close): void {
    this.#closers.push({ name, close });
  }

  /**
   * Closes everything once, the last opened first. A close that fails does not stop the others; false if one failed.
   *
   * @param graceMs shared by all
   */
  closeAll(log: Logger, graceMs = 0): Promise<boolean> {
    this.#closing ??= this.#closeAll(log, graceMs);
    return this.#closing;
  }

  async #closeAll(log: Logger, graceMs: number): Promise<boolean> {
    const remainingMs = countdown(graceMs, this.clock);
    const least = Math.min(graceMs, LEAST_MS);
    let allClosed = true;
    for (let next = this.#closers.pop(); next; next = this.#closers.pop()) {
      this.current = next.name;
      try {
        await next.close(Math.max(least, remainingMs()));
        await failpoint("close", next.name);
      } catch (error) {
        allClosed = false;
        log.error({ what: next.name, error: oneLine(error) }, "closing failed");
      }
    }
    return allClosed;
  }
}
