import { readConnection } from "./connection.js";
import { delayOf, pause } from "./delay.js";
import { asError, TimelineError } from "./errors.js";
import { type Listener, Listeners, type StreamEvent, type StreamStates } from "./events.js";
import type { StreamEvents } from "./gen/schemas.js";
import type { Block } from "./parser.js";
import { createKeeper, type PositionStorage, readPosition } from "./position.js";
import { EventQueue } from "./queue.js";
import type { Send } from "./send.js";

interface StreamSource {
  readonly path: string;
  /** The name is a part of the default key in a storage, so that each stream has a position of its own. */
  readonly name: string;
  /** Other events only move the position. Undefined: all are passed on. */
  readonly only?: ReadonlySet<string> | undefined;
}

export interface StreamOptions {
  /** The stream resumes from the position that is stored there, and stores it. */
  readonly storage?: PositionStorage;
  /**
   * The key in the storage. It should name the user: a position of another one leads to a `reset`. Default:
   * `avion-timeline:` and the name of the stream.
   */
  readonly storageKey?: string;
  /** The stream resumes after this id. It counts before a stored one. */
  readonly lastEventId?: string;
  /** The stream is closed when this signal is aborted. */
  readonly signal?: AbortSignal;
  /** Time without a byte after which a connection is lost, ms. The server sends one every 15 seconds. Default: 45,000. */
  readonly idleMs?: number;
}

/** A connection that lasted this long was a good one: delays begin anew. */
const STABLE_MS = 10_000;
const IDLE_MS = 45_000;

/**
 * An event stream that reconnects by itself, and goes on after the last event. It opens with the first listener of an
 * event, or with the first loop over it.
 */
export class TimelineStream<Events extends keyof StreamEvents = keyof StreamEvents>
  implements AsyncIterable<StreamEvent<Events>>
{
  readonly #send: Send;
  readonly #source: StreamSource;
  readonly #options: StreamOptions;
  readonly #listeners = new Listeners();
  readonly #abort = new AbortController();
  readonly #keep: (id: string) => void;
  #queue: EventQueue<StreamEvent<Events>> | undefined;
  #isStarted = false;
  #isOpen = false;
  #openedAt = 0;
  #retryMs = 0;
  #lastEventId = "";

  constructor(send: Send, source: StreamSource, options: StreamOptions) {
    const { storage, storageKey = `avion-timeline:${source.name}`, signal } = options;
    this.#send = send;
    this.#source = source;
    this.#options = { ...options, storageKey };
    this.#keep = storage ? createKeeper(storage, storageKey) : () => undefined;
    if (signal?.aborted) this.close();
    else signal?.addEventListener("abort", this.close, { once: true });
  }

  /** The id of the last event or heartbeat that has arrived; "" before. */
  get lastEventId(): string {
    return this.#lastEventId;
  }

  get isClosed(): boolean {
    return this.#abort.signal.aborted;
  }

  on<Name extends Events | keyof StreamStates>(name: Name, listener: Listener<Name>): this {
    this.#listeners.add(name, listener);
    const isState = name === "open" || name === "down" || name === "closed";
    if (!isState) this.#start();
    return this;
  }

  off<Name extends Events | keyof StreamStates>(name: Name, listener: Listener<Name>): this {
    this.#listeners.remove(name, listener);
    return this;
  }

  /**
   * Yields the events, each to one loop only. The loop throws the error for which the stream ends; leaving the loop closes
   * the stream.
   */
  [Symbol.asyncIterator](): AsyncIterator<StreamEvent<Events>, undefined> {
    const queue = new EventQueue<StreamEvent<Events>>(this.#keep);
    if (this.#queue) throw new TypeError("the stream has a loop already");
    this.#queue = queue;
    if (this.isClosed) queue.end(undefined);
    this.#start();
    return {
      next: () => queue.take(),
      return: async () => {
        this.close();
        return { done: true, value: undefined };
      },
    };
  }

  /** Ends the stream at once: nothing more is delivered. */
  readonly close = (): void => this.#end(undefined);

  #end(error: TimelineError | undefined): void {
    if (this.isClosed) return;
    this.#options.signal?.removeEventListener("abort", this.close);
    this.#abort.abort(new TimelineError("the stream is closed"));
    this.#queue?.end(error);
    this.#say("closed", { error });
  }

  #start(): void {
    if (this.#isStarted || this.isClosed) return;
    this.#isStarted = true;
    void this.#run();
  }

  async #run(): Promise<void> {
    const { storage, storageKey = "", lastEventId } = this.#options;
    this.#lastEventId = lastEventId ?? (await readPosition(storage, storageKey));
    for (let failures = 0; !this.isClosed; failures++) {
      const error = await this.#connect();
      if (this.isClosed) return;
      if (error.isFinal) return this.#end(error);
      if (this.#isOpen && performance.now() - this.#openedAt >= STABLE_MS) failures = 0;
      const delayMs = Math.ceil(delayOf(failures, Math.max(this.#retryMs, error.retryAfterMs ?? 0)));
      this.#say("down", { error, delayMs });
      // Closing rejects the pause.
      await pause(delayMs, this.#abort.signal).catch(() => undefined);
    }
  }

  /** Resolves to the reason for which the connection ended. */
  async #connect(): Promise<TimelineError> {
    this.#isOpen = false;
    return readConnection(this.#send, {
      path: this.#source.path,
      lastEventId: this.#lastEventId,
      idleMs: this.#options.idleMs ?? IDLE_MS,
      signal: this.#abort.signal,
      received: (block) => this.#receive(block),
      retried: (ms) => {
        this.#retryMs = ms;
      },
    }).catch(asError);
  }

  #receive({ event, data, ...block }: Block): Promise<void> | undefined {
    // A refusal has no id, and ends at once.
    if (block.id !== undefined && !this.#isOpen) this.#open();
    if (this.isClosed) return undefined;
    const { id = this.#lastEventId } = block;
    const isPassed = data !== undefined && (this.#source.only?.has(event) ?? true);
    const message = isPassed ? ({ event, data: parse(data), id } as StreamEvent<Events>) : undefined;
    this.#lastEventId = id;
    if (message) this.#listeners.call(event, message);
    if (this.isClosed || id === "") return undefined;
    if (this.#queue) return this.#queue.add({ id, event: message });
    this.#keep(id);
    return undefined;
  }

  #open(): void {
    this.#isOpen = true;
    this.#openedAt = performance.now();
    this.#say("open", {});
  }

  #say<Name extends keyof StreamStates>(name: Name, message: StreamStates[Name]): void {
    this.#listeners.call(name, message);
  }
}

function parse(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch (cause) {
    // The connection is given up: a proxy has changed what the server sent.
    throw new TimelineError("an event is no JSON", { cause });
  }
}
