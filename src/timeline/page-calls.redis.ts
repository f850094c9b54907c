import { AUTHOR_PREFIX, PULLED_KEY, TOMBSTONES_KEY } from "../contracts/keys.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { MAX_IDLE_MS } from "../contracts/times.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { Origin, PageCache } from "./page-cache.js";
import { encodedPage } from "./page-response.js";
import type { MergedTimelines, Stored } from "./stored.js";

/** Of one timeline of read-page.lua. */
export interface Ask {
  readonly key: string;
  readonly args: readonly (string | number)[];
  /** The keys that the answer is made of, if it is to be cached. */
  readonly follows: readonly string[];
  /** Makes of an answer what all who asked for it get. */
  readonly finish: (answer: Stored, call: Call) => Stored | Promise<Stored>;
}

interface Call {
  /** Undefined: the keys are not followed. */
  readonly origin: Origin | undefined;
  /** Of the cache, as of the call. */
  readonly upToDate: Promise<boolean>;
}

class Asked {
  resolve!: (stored: Stored | Promise<Stored>) => void;
  reject!: (error: unknown) => void;
  /** All who ask for the same get this promise. */
  readonly answer = new Promise<Stored>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });

  constructor(readonly ask: Ask) {}
}

/** A call of so many pages blocks Redis for about 2 ms. */
const PAGES_A_CALL = 32;
/** Merging the timelines of twenty authors takes as long as so many pages. */
const MERGED_PAGES = 8;

/**
 * Asks of one turn of the event loop, and those that come while a call is under way, share the next call; none shares a
 * call that began before it. Asks for the same have the same name; `askOf` is called for the first of them.
 */
export function createPageCalls(scripts: Scripts, cache: PageCache | undefined) {
  const lanes = new Map<string, Lane>();
  return (key: string, name: string, askOf: () => Ask): Promise<Stored> => {
    // The slots of a cluster fail one by one.
    const slot = scripts.isCluster ? key : "";
    const lane = lanes.get(slot) ?? new Lane(scripts, cache, () => lanes.delete(slot));
    lanes.set(slot, lane);
    return lane.read(name, askOf);
  };
}

class Lane {
  readonly #asked = new Map<string, Asked>();
  #isBusy = false;

  constructor(
    private readonly scripts: Scripts,
    private readonly cache: PageCache | undefined,
    private readonly idle: () => void,
  ) {}

  read(name: string, askOf: () => Ask): Promise<Stored> {
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
    const merges = !this.#names();
    let size = 0;
    for (const [name, asked] of this.#asked) {
      this.#asked.delete(name);
      pages.push(asked);
      size += merges && pullsIn(asked.ask) ? MERGED_PAGES : 1;
      if (size >= PAGES_A_CALL) break;
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

  /** Pulled authors are named only: in a cluster their timelines are in other slots, else they may be cached. */
  #names(): boolean {
    return this.scripts.isCluster || this.cache?.isOn() === true;
  }

  async #call(pages: readonly Asked[]): Promise<() => void> {
    const { cache } = this;
    const areNamed = this.#names();
    const origins = pages.map(({ ask: { follows } }) => (follows.length > 0 ? cache?.begin(follows) : undefined));
    const begun = origins.filter((origin) => origin !== undefined);
    const end = (): void => {
      for (const origin of begun) cache?.end(origin);
    };
    const followed = begun.length > 0 && cache?.follow(begun);
    const upToDate = (areNamed && pages.some(({ ask }) => pullsIn(ask)) && cache?.upToDate()) || Promise.resolve(false);
    try {
      const replies = await this.#ask(pages, areNamed);
      const stored = replies.map((reply, at) => storedOf(reply, { ...(pages[at] as Asked).ask, areNamed }));
      const areFollowed = (await followed) === true;
      return () => {
        const finished = pages.map(({ ask, resolve }, at) => {
          const origin = areFollowed ? origins[at] : undefined;
          const answer = ask.finish(stored[at] as Stored, { origin, upToDate });
          resolve(answer);
          return answer;
        });
        if (begun.length > 0) void Promise.allSettled(finished.map((one) => Promise.resolve(one))).then(end);
      };
    } catch (error) {
      end();
      return () => {
        for (const { reject } of pages) reject(error);
      };
    }
  }

  #ask(pages: readonly Asked[], areNamed: boolean): Promise<(Buffer | Buffer[])[]> {
    const { isCluster, runBytes } = this.scripts;
    const keys = pages.map(({ ask }) => ask.key);
    const prefix = areNamed ? "" : AUTHOR_PREFIX;
    const args = [isCluster ? "" : 1, MAX_IDLE_MS, PULLED_KEY, prefix, ...pages.flatMap(({ ask }) => ask.args)];
    return runBytes("read-page", isCluster ? keys : [...keys, TOMBSTONES_KEY], args) as Promise<(Buffer | Buffer[])[]>;
  }
}

const pullsIn = ({ args }: Ask): boolean => args.at(-1) !== "";

function storedOf(
  reply: Buffer | readonly Buffer[],
  { key, args: [direction, count], areNamed }: Pick<Ask, "key" | "args"> & { readonly areNamed: boolean },
): Stored {
  if (Buffer.isBuffer(reply)) return { floor: 0, entries: [], areAlive: true, page: encodedPage(reply) };
  const [floor, alive, merged = "", ...held] = reply.map(String);
  const ascending: TimelineEntry[] = [];
  for (let at = 0; at < held.length; at += 2) ascending.push({ drop: held[at] as string, score: Number(held[at + 1]) });
  const nearest = direction === "older" ? ascending.toReversed() : ascending;
  const isComplete = floor !== "" && Number(floor) >= 0;
  const pulled = merged === "" ? undefined : pulledIn(merged, { home: key, isComplete, areNamed });
  return {
    floor: isComplete && pulled?.areKnown !== false ? Number(floor) : undefined,
    entries: nearest.slice(0, Number(count)),
    areAlive: alive === "1",
    ...(pulled && { pulled }),
  };
}

const NOT_KNOWN = "?";
const HOME = "~home";

interface PulledBy {
  readonly home: string;
  readonly isComplete: boolean;
  readonly areNamed: boolean;
}

function pulledIn(merged: string, { home, isComplete, areNamed }: PulledBy): MergedTimelines {
  if (merged === NOT_KNOWN) return { areKnown: false, keys: [], incomplete: isComplete ? [] : [home], areNamed };
  const keysIn = (names: string): string[] =>
    names === "" ? [] : names.split(",").map((name) => (name === HOME ? home : AUTHOR_PREFIX + name));
  const [authors = "", incomplete = ""] = merged.split("/");
  return { areKnown: true, keys: keysIn(authors), incomplete: keysIn(incomplete), areNamed };
}
