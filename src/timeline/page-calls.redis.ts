import { TOMBSTONES_KEY } from "../contracts/keys.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { MAX_IDLE_MS } from "../contracts/times.js";
import { type Scripts, script } from "../platform/redis/scripts.js";
import type { Origin, PageCache } from "./page-cache.js";
import { encodedPage } from "./page-response.js";
import type { EncodedPage, Range } from "./stored.js";

const READ_PAGE = script("read-page", import.meta.url, { inBytes: true });

/** An ask is for one timeline, which read-page.lua reads. */
export interface Ask {
  readonly range: Range;
  /** The read gives the key this time to live, in ms; 0 leaves it. */
  readonly ttl: number;
  /** The set has the authors whose timelines are merged into this one; "" stands for none. */
  readonly pulls: string;
  /** The answer is made of these keys, if it is to be cached. */
  readonly follows: readonly string[];
}

export interface Answer {
  /** The floor is in ms; where it is undefined, the timeline must be rebuilt. */
  readonly floor: number | undefined;
  /** The entries nearest to the position come first. */
  readonly entries: readonly TimelineEntry[];
  /** The entries must be compared with the tombstones where this is false. */
  readonly areAlive: boolean;
  /** An encoded page replaces the entries where nothing is merged into it. */
  readonly page?: EncodedPage;
  /**
   * The tokens are of the authors in the set that was named; undefined where none was named, or the set is not known.
   */
  readonly authors: readonly string[] | undefined;
  readonly isSetNamed: boolean;
  /**
   * The keys are followed since before the call; this must be ended. It is undefined where not all of them are
   * followed.
   */
  readonly origin: Origin | undefined;
}

class Asked {
  resolve!: (answer: Answer) => void;
  reject!: (error: unknown) => void;
  readonly answer = new Promise<Answer>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });

  constructor(readonly ask: Ask) {}
}

/** A call of so many pages blocks Redis for about 2 ms. */
const PAGES_A_CALL = 32;

/**
 * Asks of one turn of the event loop, and those that come while a call is under way, share the next call; none shares a
 * call that began before it. Asks for the same have the same name, and get the same promise; `askOf` is called for the
 * first of them.
 */
export function createPageCalls(scripts: Scripts, cache: PageCache | undefined) {
  const queues = new Map<string, Queue>();
  return (key: string, name: string, askOf: () => Ask): Promise<Answer> => {
    // The slots of a cluster fail one by one.
    const slot = scripts.isCluster ? key : "";
    const queue = queues.get(slot) ?? new Queue(scripts, cache, () => queues.delete(slot));
    queues.set(slot, queue);
    return queue.ask(name, askOf);
  };
}

class Queue {
  readonly #asked = new Map<string, Asked>();
  #isBusy = false;

  constructor(
    private readonly scripts: Scripts,
    private readonly cache: PageCache | undefined,
    private readonly idle: () => void,
  ) {}

  ask(name: string, askOf: () => Ask): Promise<Answer> {
    const asked = this.#asked.get(name) ?? new Asked(askOf());
    this.#asked.set(name, asked);
    if (!this.#isBusy) {
      this.#isBusy = true;
      setImmediate(() => this.#next());
    }
    return asked.answer;
  }

  /** Sends the next call before readers get their answers: Redis works while they are sent. */
  #next(): void {
    const pages: Asked[] = [];
    for (const [name, asked] of this.#asked) {
      this.#asked.delete(name);
      pages.push(asked);
      if (pages.length >= PAGES_A_CALL) break;
    }
    if (pages.length === 0) {
      this.#isBusy = false;
      return this.idle();
    }
    void this.#call(pages).then((settle) => {
      this.#next();
      settle();
    });
  }

  async #call(pages: readonly Asked[]): Promise<() => void> {
    const { cache } = this;
    const origins = pages.map(({ ask: { follows } }) => (follows.length > 0 ? cache?.begin(follows) : undefined));
    const begun = origins.filter((origin) => origin !== undefined);
    const end = (): void => {
      for (const origin of begun) cache?.end(origin);
    };
    const followed = begun.length > 0 && cache?.follow(begun);
    try {
      const replies = await this.#ask(pages);
      const answers = replies.map((reply, at) => answerOf(reply, (pages[at] as Asked).ask));
      const areFollowed = (await followed) === true;
      if (!areFollowed) end();
      return () => {
        for (const [at, { resolve }] of pages.entries())
          resolve({ ...(answers[at] as Omit<Answer, "origin">), origin: areFollowed ? origins[at] : undefined });
      };
    } catch (error) {
      end();
      return () => {
        for (const { reject } of pages) reject(error);
      };
    }
  }

  #ask(pages: readonly Asked[]): Promise<Buffer[]> {
    const { isCluster, run } = this.scripts;
    const keys = pages.map(({ ask }) => ask.range.key);
    const args = [isCluster ? "" : 1, MAX_IDLE_MS, ...pages.flatMap(({ ask }) => argsOf(ask))];
    return run(READ_PAGE, isCluster ? keys : [...keys, TOMBSTONES_KEY], args) as Promise<Buffer[]>;
  }
}

function argsOf({ range: { direction, from, count, page }, ttl, pulls }: Ask): readonly (string | number)[] {
  if (from) return [direction, count, ttl, from.score, from.drop, pulls, 0, 0];
  return [direction, count, ttl, "", "", pulls, page?.drops ?? 0, page?.since ?? 0];
}

const NOT_KNOWN = "?";
/** Begins an answer with entries; a page begins with 0 or 1. */
const JSON_START = "[".charCodeAt(0);

function answerOf(reply: Buffer, { range: { direction }, pulls }: Ask): Omit<Answer, "origin"> {
  const isSetNamed = pulls !== "";
  if (reply[0] !== JSON_START)
    return { floor: 0, entries: [], areAlive: true, authors: [], isSetNamed, page: encodedPage(reply) };
  const [floor = "", alive, authors = "", ...held] = JSON.parse(reply.toString()) as string[];
  const entries: TimelineEntry[] = [];
  for (let at = 0; at < held.length; at += 2) entries.push({ drop: held[at] as string, score: Number(held[at + 1]) });
  if (direction === "older") entries.reverse();
  return {
    floor: floor === "" || Number(floor) < 0 ? undefined : Number(floor),
    entries,
    areAlive: alive === "1",
    authors: !isSetNamed || authors === NOT_KNOWN ? undefined : authors.split(",").filter(Boolean),
    isSetNamed,
  };
}
