/** A place in the stream, and the event that stands there, if there is one. */
export interface Entry<Event> {
  readonly id: string;
  readonly event: Event | undefined;
}

/** Maximum number of events that wait for a loop. With more the stream is not read on, so that the server holds them. */
export const MAX_WAITING = 64;

/** Hands events to one loop. A position counts as passed once the loop asks for what comes after it. */
export class EventQueue<Event> {
  readonly #entries: Entry<Event>[] = [];
  readonly #takers: PromiseWithResolversOf<IteratorResult<Event, undefined>>[] = [];
  #handed: string | undefined;
  #roomMade: (() => void) | undefined;
  #end: { readonly error: Error | undefined } | undefined;

  constructor(private readonly passed: (id: string) => void) {}

  /** Returns a promise if the stream waits for room. */
  add(entry: Entry<Event>): Promise<void> | undefined {
    const taker = entry.event === undefined ? undefined : this.#takers.shift();
    if (taker) this.#hand(taker, entry);
    else if (entry.event === undefined && this.#takers.length > 0) this.passed(entry.id);
    else {
      // One position outdates the one before.
      if (entry.event === undefined && this.#entries.at(-1)?.event === undefined) this.#entries.pop();
      this.#entries.push(entry);
    }
    if (this.#entries.length < MAX_WAITING) return undefined;
    return new Promise((resolve) => {
      this.#roomMade = resolve;
    });
  }

  take(): Promise<IteratorResult<Event, undefined>> {
    if (this.#handed !== undefined) this.passed(this.#handed);
    this.#handed = undefined;
    const taker = withResolvers<IteratorResult<Event, undefined>>();
    let entry = this.#entries.shift();
    for (; entry && entry.event === undefined; entry = this.#entries.shift()) this.passed(entry.id);
    if (entry) this.#hand(taker, entry);
    else if (this.#end) this.#finish(taker);
    else this.#takers.push(taker);
    if (this.#entries.length < MAX_WAITING / 2) this.#makeRoom();
    return taker.promise;
  }

  /** Ends the loop at once, with an error or without. */
  end(error: Error | undefined): void {
    this.#end ??= { error };
    this.#entries.length = 0;
    this.#makeRoom();
    for (const taker of this.#takers.splice(0)) this.#finish(taker);
  }

  #hand(taker: PromiseWithResolversOf<IteratorResult<Event, undefined>>, { id, event }: Entry<Event>): void {
    this.#handed = id;
    taker.resolve({ done: false, value: event as Event });
  }

  /** The error is thrown once. */
  #finish(taker: PromiseWithResolversOf<IteratorResult<Event, undefined>>): void {
    const error = this.#end?.error;
    this.#end = { error: undefined };
    if (error) taker.reject(error);
    else taker.resolve({ done: true, value: undefined });
  }

  #makeRoom(): void {
    this.#roomMade?.();
    this.#roomMade = undefined;
  }
}

interface PromiseWithResolversOf<Value> {
  readonly promise: Promise<Value>;
  resolve(value: Value): void;
  reject(error: Error): void;
}

/** Promise.withResolvers, which Node 20 lacks. */
function withResolvers<Value>(): PromiseWithResolversOf<Value> {
  let [resolve, reject]: [(value: Value) => void, (error: Error) => void] = [() => undefined, () => undefined];
  const promise = new Promise<Value>((...both) => {
    [resolve, reject] = both;
  });
  return { promise, resolve, reject };
}
