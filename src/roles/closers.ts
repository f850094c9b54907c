import { oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";

export class Closers {
  current: string | undefined;
  readonly #closers: { readonly name: string; readonly close: () => Promise<void> | void }[] = [];
  #closing: Promise<boolean> | undefined;

  add(name: string, close: () => Promise<void> | void): void {
    this.#closers.push({ name, close });
  }

  /** Closes everything once, the last opened first. A close that fails does not stop the others; false if one failed. */
  closeAll(log: Logger): Promise<boolean> {
    this.#closing ??= this.#closeAll(log);
    return this.#closing;
  }

  async #closeAll(log: Logger): Promise<boolean> {
    let allClosed = true;
    for (let next = this.#closers.pop(); next; next = this.#closers.pop()) {
      this.current = next.name;
      try {
        await next.close();
        await failpoint("close", next.name);
      } catch (error) {
        allClosed = false;
        log.error({ what: next.name, error: oneLine(error) }, "closing failed");
      }
    }
    return allClosed;
  }
}
