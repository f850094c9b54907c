import { TimelineError } from "./errors.js";

/** A block of an event stream. One without data has no event: it only moves the position. */
export interface Block {
  /** Undefined: the position stays as it was. */
  readonly id: string | undefined;
  readonly event: string;
  readonly data: string | undefined;
}

/** Maximum number of characters of a block: more are no event of this service. */
const MAX_CHARS = 1_048_576;
const LINE_END = /\r\n|\r|\n/g;

/** Parses an event stream (WHATWG HTML, section 9.2.6), which may be cut anywhere between two texts. */
export class EventParser {
  /** The last comment. */
  comment = "";
  #rest = "";
  /** Characters of the rest in which no line ends. */
  #searched = 0;
  #id: string | undefined;
  #event = "";
  #data: string[] = [];
  #chars = 0;

  /** @param retried gets the time that the server names, ms */
  constructor(private readonly retried: (ms: number) => void) {}

  /** Takes the next text, and yields the blocks that are complete. */
  *feed(text: string): Generator<Block> {
    this.#rest += text;
    let start = 0;
    LINE_END.lastIndex = this.#searched;
    for (let end = LINE_END.exec(this.#rest); end !== null; end = LINE_END.exec(this.#rest)) {
      // The other half of this end of a line may be in the next text.
      if (end[0] === "\r" && LINE_END.lastIndex === this.#rest.length) break;
      const line = this.#rest.slice(start, end.index);
      start = LINE_END.lastIndex;
      if (line !== "") this.#take(line);
      else yield this.#complete();
      LINE_END.lastIndex = start;
    }
    this.#rest = this.#rest.slice(start);
    this.#searched = Math.max(0, this.#rest.length - 1);
    if (this.#rest.length + this.#chars > MAX_CHARS) throw new TimelineError("an event is too long");
  }

  #take(line: string): void {
    const [, field = "", value = ""] = /^([^:]*)(?:: ?)?(.*)$/s.exec(line) ?? [];
    if (field === "") this.comment = value;
    else if (field === "event") this.#event = value;
    else if (field === "data") {
      this.#data.push(value);
      this.#chars += value.length + 1;
    } else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retried(Number(value));
  }

  #complete(): Block {
    const data = this.#data.length === 0 ? undefined : this.#data.join("\n");
    const block = { id: this.#id, event: this.#event || "message", data };
    [this.#id, this.#event, this.#data, this.#chars] = [undefined, "", [], 0];
    return block;
  }
}
