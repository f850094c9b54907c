import { randomInt } from "node:crypto";

const SMALLEST = 1_024;
/** Other slots hold a fingerprint. */
const EMPTY = 0;

/**
 * A set of texts by 32 bits of each: it has all that were added, and of n others about one in 2^32 / n. A text takes 8 to
 * 16 bytes. Nothing is removed.
 */
export class Fingerprints {
  #slots = new Uint32Array(SMALLEST);
  #size = 0;
  /** Nobody outside can choose texts that share slots. */
  readonly #seed = randomInt(2 ** 32);

  /** Texts with the same fingerprint count once. */
  get size(): number {
    return this.#size;
  }

  add(text: string): void {
    const bytes = Buffer.from(text);
    if (!this.#put(this.#fingerprintOf(bytes, 0, bytes.length))) return;
    if (++this.#size * 2 <= this.#slots.length) return;
    const previous = this.#slots;
    this.#slots = new Uint32Array(previous.length * 2);
    for (const fingerprint of previous) if (fingerprint !== EMPTY) this.#put(fingerprint);
  }

  /** Returns true if the text in these bytes was added. */
  mayHave(bytes: Uint8Array, start = 0, end = bytes.length): boolean {
    const fingerprint = this.#fingerprintOf(bytes, start, end);
    return this.#slots[this.#slotOf(fingerprint)] === fingerprint;
  }

  /** Returns false if it is held already. */
  #put(fingerprint: number): boolean {
    const slot = this.#slotOf(fingerprint);
    if (this.#slots[slot] === fingerprint) return false;
    this.#slots[slot] = fingerprint;
    return true;
  }

  /** Returns the slot that has the fingerprint, or the empty one for it. */
  #slotOf(fingerprint: number): number {
    const slots = this.#slots;
    const mask = slots.length - 1;
    let slot = fingerprint & mask;
    while (slots[slot] !== EMPTY && slots[slot] !== fingerprint) slot = (slot + 1) & mask;
    return slot;
  }

  /** Returns FNV-1a, mixed once more: its low bits choose the slot. */
  #fingerprintOf(bytes: Uint8Array, start: number, end: number): number {
    let hash = this.#seed;
    for (let index = start; index < end; index++) hash = Math.imul(hash ^ (bytes[index] as number), 0x01000193);
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
    return (hash ^ (hash >>> 13)) >>> 0 || 1;
  }
}
