import type { Note } from "./ports.js";

const MOST_NOTES = 256;
const MOST_CHARS = 256 * 1024;

/**
 * Live notifications that came while a session caught up: the first ones, without a hole
 * between them. What finds no room is only counted, and read from the stream later.
 */
export class Held {
  #notes: Note[] = [];
  #chars = 0;
  #full = false;
  /** How many came since the last {@link clear}, those without room too. */
  count = 0;
  /** The highest sequence that came. */
  highest = 0;

  add(note: Note): void {
    this.count++;
    this.highest = Math.max(this.highest, note.seq);
    this.#full ||= this.#notes.length >= MOST_NOTES || this.#chars >= MOST_CHARS;
    if (this.#full) return;
    this.#notes.push(note);
    this.#chars += note.content?.data.length ?? 0;
  }

  get first(): Note | undefined {
    return this.#notes[0];
  }

  shift(): Note | undefined {
    const note = this.#notes.shift();
    if (note) this.#chars -= note.content?.data.length ?? 0;
    if (this.#notes.length === 0) this.#full = false;
    return note;
  }

  clear(): void {
    this.#notes = [];
    this.#chars = 0;
    this.#full = false;
    this.count = 0;
    this.highest = 0;
  }
}
