import type { Feed, Note } from "./ports.js";

/** Who takes a user's live notifications. */
export interface Listener {
  take(note: Note): void;
  /** Live delivery was cut meanwhile: whatever was missed is to be found. */
  recheck(): Promise<void>;
}

interface Entry {
  readonly listeners: Set<Listener>;
  readonly stop: () => void;
}

/** Listeners rechecked at the same time after a reconnect. */
const RECHECKS_AT_ONCE = 64;

/** Shares one subscription among all streams of a user. */
export class Hub {
  readonly #users = new Map<string, Entry>();

  constructor(private readonly feed: Feed) {}

  /** Users with a subscription. */
  get size(): number {
    return this.#users.size;
  }

  /** Adds a listener; resolves when everything published from then on reaches it. */
  async join(user: string, listener: Listener): Promise<void> {
    const entry = this.#users.get(user);
    if (entry) entry.listeners.add(listener);
    else this.#users.set(user, this.#follow(user, listener));
    await this.feed.flushed();
  }

  /** Takes a listener out, and with the last one the subscription. */
  leave(user: string, listener: Listener): void {
    const entry = this.#users.get(user);
    if (!entry?.listeners.delete(listener) || entry.listeners.size > 0) return;
    this.#users.delete(user);
    entry.stop();
  }

  /** Lets every listener look for what it missed, some at a time. */
  async recheckAll(): Promise<void> {
    await this.feed.flushed();
    const all = [...this.#users.values()].flatMap((entry) => [...entry.listeners]);
    const lane = async (): Promise<void> => {
      for (let next = all.pop(); next; next = all.pop()) await next.recheck();
    };
    await Promise.all(Array.from({ length: RECHECKS_AT_ONCE }, lane));
  }

  #follow(user: string, first: Listener): Entry {
    const listeners = new Set([first]);
    const stop = this.feed.follow(user, (note) => {
      for (const listener of listeners) listener.take(note);
    });
    return { listeners, stop };
  }
}
