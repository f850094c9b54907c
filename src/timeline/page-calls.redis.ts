import { TOMBSTONES_KEY } from "../contracts/keys.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { MAX_IDLE_MS } from "../contracts/times.js";
import { type Scripts, script } from "../platform/redis/scripts.js";
import type { Origin, PageCache } from "./page-cache.js";
import { encodedPage } from "./page-response.js";
import type { Range, Stored } from "./stored.js";

const READ_PAGE = script("read-page", import.meta.url, { inBytes: true });

/** The read of one timeline by read-page.lua. */
export interface StoreRead {
  readonly range: Range;
  /** The read gives the key this time to live, in ms; 0 leaves it. */
  readonly ttl: number;
  /** The set has the authors whose timelines are merged into this one; "" stands for none. */
  readonly pulls: string;
  /** The answer is made of these keys, if it is to be cached. */
  readonly follows: readonly string[];
}

/** An encoded page replaces the entries where nothing is merged into it. */
export interface Reply extends Omit<Stored, "merged" | "incomplete"> {
  /** The tokens of the authors in the set that was named; undefined if none was, or the set is not known. */
  readonly authors: readonly string[] | undefined;
  readonly isSetNamed: boolean;
  /** The user of the home hides somebody, and authors are merged into it. */
  readonly hides: boolean;
  /** The keys are followed since before the call, until this is ended; undefined if one of them is not followed. */
  readonly origin: Origin | undefined;
}

class PendingRead {
  resolve!: (reply: Reply) => void;
  reject!: (error: unknown) => void;
  readonly reply = new Promise<Reply>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });

  constructor(readonly read: StoreRead) {}
}

/** A call of so many pages blocks Redis for about 2 ms. */
const PAGES_A_CALL = 32;

/**
 * Reads of one turn of the event loop, and those that come while a call is under way, share the next call; none shares a
 * call that began before it. Reads of one name get the same promise; `readOf` is called for the first of them.
 */
export function createPageCalls(scripts: Scripts, cache: PageCache | undefined) {
  const queues = new Map<string, Queue>();
  return (key: string, name: string, readOf: () => StoreRead): Promise<Reply> => {
    // The slots of a cluster fail one by one.
    const slot = scripts.isCluster ? key : "";
    const queue = queues.get(slot) ?? new Queue(scripts, cache, () => queues.delete(slot));
    queues.set(slot, queue);
    return queue.add(name, readOf);
  };
}

class Queue {
  readonly #pending = new Map<string, PendingRead>();
  #isBusy = false;

  constructor(
    private readonly scripts: Scripts,
    private readonly cache: PageCache | undefined,
    private readonly idle: () => void,
  ) {}

  add(name: string, readOf: () => StoreRead): Promise<Reply> {
    const pending = this.#pending.get(name) ?? new PendingRead(readOf());
    this.#pending.set(name, pending);
    if (!this.#isBusy) {
      this.#isBusy = true;
      setImmediate(() => this.#next());
    }
    return pending.reply;
  }

  /** Sends the next call before readers get their replies: Redis works while they are sent. */
  #next(): void {
    const reads: PendingRead[] = [];
    for (const [name, pending] of this.#pending) {
      this.#pending.delete(name);
      reads.push(pending);
      if (reads.length >= PAGES_A_CALL) break;
    }
    if (reads.length === 0) {
      this.#isBusy = false;
      return this.idle();
    }
    void this.#call(reads).then((settle) => {
      this.#next();
      settle();
    });
  }

  async #call(reads: readonly PendingRead[]): Promise<() => void> {
    const { cache } = this;
    const origins = reads.map(({ read: { follows } }) => (follows.length > 0 ? cache?.begin(follows) : undefined));
    const begun = origins.filter((origin) => origin !== undefined);
    const end = (): void => {
      for (const origin of begun) cache?.end(origin);
    };
    const followed = begun.length > 0 && cache?.follow(begun);
    try {
      const texts = await this.#send(reads.map(({ read }) => read));
      const replies = texts.map((text, at) => replyOf(text, (reads[at] as PendingRead).read));
      const areFollowed = (await followed) === true;
      if (!areFollowed) end();
      return () => {
        for (const [at, { resolve }] of reads.entries())
          resolve({ ...(replies[at] as Omit<Reply, "origin">), origin: areFollowed ? origins[at] : undefined });
      };
    } catch (error) {
      end();
      return () => {
        for (const { reject } of reads) reject(error);
      };
    }
  }

  #send(reads: readonly StoreRead[]): Promise<Buffer[]> {
    const { isCluster, run } = this.scripts;
    const keys = reads.map(({ range }) => range.key);
    const args = [isCluster ? "" : 1, MAX_IDLE_MS, ...reads.flatMap(argsOf)];
    return run(READ_PAGE, isCluster ? keys : [...keys, TOMBSTONES_KEY], args) as Promise<Buffer[]>;
  }
}

function argsOf({ range: { direction, from, count, page }, ttl, pulls }: StoreRead): readonly (string | number)[] {
  if (from) return [direction, count, ttl, from.score, from.drop, pulls, 0, 0];
  return [direction, count, ttl, "", "", pulls, page?.drops ?? 0, page?.since ?? 0];
}

const NOT_KNOWN = "?";
/** This begins a reply with entries; a page begins with 0 or 1. */
const JSON_START = "[".charCodeAt(0);

function replyOf(text: Buffer, { range: { direction }, pulls }: StoreRead): Omit<Reply, "origin"> {
  const isSetNamed = pulls !== "";
  if (text[0] !== JSON_START)
    return { floor: 0, entries: [], areAlive: true, authors: [], isSetNamed, hides: false, page: encodedPage(text) };
  const [floor = "", alive, authors = "", hides, ...held] = JSON.parse(text.toString()) as string[];
  const entries: TimelineEntry[] = [];
  for (let at = 0; at < held.length; at += 2) entries.push({ drop: held[at] as string, score: Number(held[at + 1]) });
  if (direction === "older") entries.reverse();
  return {
    floor: floor === "" || Number(floor) < 0 ? undefined : Number(floor),
    entries,
    areAlive: alive === "1",
    authors: !isSetNamed || authors === NOT_KNOWN ? undefined : authors.split(",").filter(Boolean),
    isSetNamed,
    hides: hides === "1",
  };
}
