import { GLOBAL_KEY, LOCAL_KEY, TOMBSTONES_KEY } from "../contracts/keys.js";
import type { TimelineEntry } from "../contracts/timelines.js";
import { MAX_IDLE_MS } from "../contracts/times.js";
import { inSpan, SpanKind } from "../delivery/telemetry.js";
import { codeOf } from "../kernel/errors.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { type EncodedPage, encodedPage } from "./page-response.js";

interface Range {
  readonly key: string;
  readonly direction: "older" | "newer";
  /** Exclusive; undefined: from the end. */
  readonly from: TimelineEntry | undefined;
  readonly count: number;
  /** Asks for an encoded page of so many drops where none of them is hidden; those older than `since` (ms) are. */
  readonly page?: { readonly drops: number; readonly since: number } | undefined;
}

export interface Stored {
  /** In ms; undefined: the timeline must be rebuilt. */
  readonly floor: number | undefined;
  /** Those nearest to `from` first, complete down to `floor`. */
  readonly entries: readonly TimelineEntry[];
  /** False: the entries must be compared with the tombstones. */
  readonly areAlive: boolean;
  /** Then there are no entries. */
  readonly page?: EncodedPage;
}

interface Asked {
  readonly key: string;
  readonly args: readonly (string | number)[];
  readonly readers: { readonly resolve: (stored: Stored) => void; readonly reject: (error: unknown) => void }[];
}

/** Redis takes some 2 ms for a call of so many pages, and serves nobody else meanwhile. */
const PAGES_A_CALL = 32;

const NO_PAGE = { drops: 0, since: 0 } as const;
const SPAN = { kind: SpanKind.CLIENT, attributes: { "db.system": "redis" } } as const;

/**
 * Reads entries next to a position. Reads of one turn of the event loop, and those that come while a call is under way,
 * share the next call; no read shares a call that began before it. `ttlMs`: of homes.
 */
export function createReadPages(scripts: Scripts, ttlMs: number): (range: Range) => Promise<Stored> {
  const lanes = new Map<string, Lane>();
  // The slots of a cluster fail one by one.
  const laneOf = (key: string): Lane => {
    const name = scripts.isCluster ? key : "";
    const lane = lanes.get(name) ?? new Lane(scripts, () => lanes.delete(name));
    lanes.set(name, lane);
    return lane;
  };
  return ({ key, direction, from, count, page = NO_PAGE }) => {
    const ttl = key === LOCAL_KEY || key === GLOBAL_KEY ? 0 : ttlMs;
    const position = from ? [from.score, from.drop] : ["", ""];
    const args = [direction, count, ttl, page.drops, page.since, ...position];
    return inSpan("redis read-page", SPAN, () => laneOf(key).read(key, args));
  };
}

class Lane {
  readonly #asked = new Map<string, Asked>();
  #isBusy = false;

  constructor(
    private readonly scripts: Scripts,
    private readonly idle: () => void,
  ) {}

  read(key: string, args: Asked["args"]): Promise<Stored> {
    return new Promise((resolve, reject) => {
      const name = `${key} ${args.join(" ")}`;
      const asked = this.#asked.get(name);
      if (asked) asked.readers.push({ resolve, reject });
      else this.#asked.set(name, { key, args, readers: [{ resolve, reject }] });
      if (this.#isBusy) return;
      this.#isBusy = true;
      setImmediate(() => this.#next());
    });
  }

  /** Sends the next call before readers get their answers: Redis works while they are sent. */
  #next(): void {
    const pages: Asked[] = [];
    for (const [name, asked] of this.#asked) {
      this.#asked.delete(name);
      if (pages.push(asked) === PAGES_A_CALL) break;
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
    const { isCluster, runBytes } = this.scripts;
    const keys = pages.map(({ key }) => key);
    const args = [isCluster ? "" : 1, MAX_IDLE_MS, ...pages.flatMap((page) => page.args)];
    try {
      const replies = (await runBytes("read-page", isCluster ? keys : [...keys, TOMBSTONES_KEY], args)) as unknown[];
      const stored = replies.map((reply, at) => storedOf(reply as Buffer | Buffer[], pages[at] as Asked));
      return () => {
        for (const [at, { readers }] of pages.entries())
          for (const { resolve } of readers) resolve(stored[at] as Stored);
      };
    } catch (error) {
      // One of the keys may be no timeline.
      const isOfOne = pages.length > 1 && codeOf(error) !== "unavailable";
      const alone = isOfOne ? await Promise.all(pages.map((page) => this.#call([page]))) : undefined;
      return () => {
        if (alone) for (const settle of alone) settle();
        else for (const { readers } of pages) for (const { reject } of readers) reject(error);
      };
    }
  }
}

function storedOf(reply: Buffer | readonly Buffer[], { args: [direction, count] }: Asked): Stored {
  if (Buffer.isBuffer(reply)) return { floor: 0, entries: [], areAlive: true, page: encodedPage(reply) };
  const [floor, alive, ...held] = reply.map(String);
  const ascending: TimelineEntry[] = [];
  for (let at = 0; at < held.length; at += 2) ascending.push({ drop: held[at] as string, score: Number(held[at + 1]) });
  const nearest = direction === "older" ? ascending.toReversed() : ascending;
  const isComplete = floor !== "" && Number(floor) >= 0;
  return {
    floor: isComplete ? Number(floor) : undefined,
    entries: nearest.slice(0, Number(count)),
    areAlive: alive === "1",
  };
}
