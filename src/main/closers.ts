import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";

/** Whoever opens something registers its close here. */
export class Closers {
  readonly #closers: { readonly name: string; readonly close: () => Promise<void> | void }[] = [];
  #closing: Promise<void> | undefined;

  add(name: string, close: () => Promise<void> | void): void {
    this.#closers.push({ name, close });
  }

  /** Closes everything once, the last opened first; a close that fails does not stop the others. */
  closeAll(log: Logger): Promise<void> {
    this.#closing ??= this.#closeAll(log);
    return this.#closing;
  }

  async #closeAll(log: Logger): Promise<void> {
    for (let next = this.#closers.pop(); next; next = this.#closers.pop()) {
      try {
        await next.close();
      } catch (error) {
        log.error({ what: next.name, error: oneLine(error) }, "closing failed");
      }
    }
  }
}
