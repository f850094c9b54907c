type Release = () => void;

/**
 * Many hold it at once, or one that is exclusive: a message that may have ended a process is handled alone. It is given
 * in the order in which it was asked for.
 */
export class SharedLock {
  #holders = 0;
  #isExclusive = false;
  readonly #waiting: { readonly exclusive: boolean; readonly begin: () => void }[] = [];

  acquire(exclusive: boolean): Promise<Release> | Release {
    if (this.#waiting.length === 0 && this.#isFree(exclusive)) return this.#hold(exclusive);
    return new Promise((resolve) => {
      this.#waiting.push({ exclusive, begin: () => resolve(this.#hold(exclusive)) });
    });
  }

  #isFree(exclusive: boolean): boolean {
    return exclusive ? this.#holders === 0 : !this.#isExclusive;
  }

  #hold(exclusive: boolean): Release {
    this.#holders++;
    this.#isExclusive = exclusive;
    return () => {
      this.#holders--;
      this.#isExclusive = false;
      this.#next();
    };
  }

  #next(): void {
    for (let first = this.#waiting[0]; first && this.#isFree(first.exclusive); first = this.#waiting[0]) {
      this.#waiting.shift();
      first.begin();
    }
  }
}
