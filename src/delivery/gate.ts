type Leave = () => void;

/** A message that may have ended a process runs alone; it goes before the places asked for after it. */
export class Gate {
  #inside = 0;
  #alone = false;
  readonly #waiting: { readonly alone: boolean; readonly enter: () => void }[] = [];

  enter(alone: boolean): Promise<Leave> | Leave {
    if (this.#waiting.length === 0 && this.#hasRoom(alone)) return this.#admit(alone);
    return new Promise((resolve) => {
      this.#waiting.push({ alone, enter: () => resolve(this.#admit(alone)) });
    });
  }

  #hasRoom(alone: boolean): boolean {
    return alone ? this.#inside === 0 : !this.#alone;
  }

  #admit(alone: boolean): Leave {
    this.#inside++;
    this.#alone = alone;
    return () => {
      this.#inside--;
      this.#alone = false;
      this.#next();
    };
  }

  #next(): void {
    for (let first = this.#waiting[0]; first && this.#hasRoom(first.alone); first = this.#waiting[0]) {
      this.#waiting.shift();
      first.enter();
    }
  }
}
