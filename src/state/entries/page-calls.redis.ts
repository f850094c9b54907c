import { bylineOf, type TimelineEntry } from "../../contracts/timelines.js";
import { MAX_IDLE_MS } from "../../contracts/times.js";
import { inOrder, type Scripts } from "../../platform/redis/scripts.js";
import type { TombstoneCopy, Tombstones } from "../fences/tombstone-copy.redis.js";
import { createTombstoneCheck } from "../fences/tombstones.redis.js";
import { script } from "../scripts.redis.js";
import type { PageCache } from "./page-cache.js";
import { dropsOf, encodedPage, someDrop } from "./page-response.js";
import { entriesIn } from "./scored.js";
import type { Range, Stored } from "./stored.js";

const READ_PAGE = script("read-page", import.meta.url, { inBytes: true });

/** Read of one timeline by read-page.lua. */
export interface StoreRead {
  readonly range: Range;
  /** Time to live that the read gives the key, in ms; 0: unchanged. */
  readonly ttl: number;
  /** Key of the set of authors whose timelines are merged into this one; "": none. */
  readonly pulls: string;
  /** Keys that the answer depends on, if it is to be cached; otherwise empty. */
  readonly follows: readonly string[];
  /** True if suspensions may hide entries of the home: it is answered in entries, and judged afterwards. */
  readonly isJudged?: boolean;
}

/** Reply to a read. If no timeline is merged, an encoded page replaces the entries. */
export interface Reply extends Omit<Stored, "merged" | "incomplete"> {
  /** Tokens of the authors in the set that was named. Undefined if none was named, or the set is not complete. */
  readonly authors: readonly string[] | undefined;
  readonly isSetNamed: boolean;
  /** True if the user of the home hides somebody, and authors are merged into the home. */
  readonly hides: boolean;
  /**
   * True if a change removes the floor of the home soon, without a write that is announced: the answer is not cached.
   */
  readonly isRenewedSoon: boolean;
  /** True if changes of the keys to follow are announced since before the call. */
  readonly isFollowed: boolean;
}

type Unfollowed = Omit<Reply, "isFollowed">;

/** Makes an answer of the reply to a read. Calls `send` at once. */
type Begin<Answer> = (send: (read: StoreRead) => Promise<Reply>) => Promise<Answer>;

class PendingRead<Answer> {
  /** Answer that all readers of this name share. */
  answer: Promise<Answer> | undefined;
  resolve!: (reply: Reply) => void;
  reject!: (error: unknown) => void;
  readonly reply = new Promise<Reply>((resolve, reject) => {
    this.resolve = resolve;
    this.reject = reject;
  });

  constructor(readonly read: StoreRead) {}
}

export interface PageCallsOptions {
  /** Number of entries that are read in addition in place of an encoded page, if the timeline has reposts. */
  readonly moreForReposts?: number | undefined;
  readonly cache?: PageCache | undefined;
  /** Copy of the tombstones in a cluster: pages that show none of these need no check there. */
  readonly tombstones?: Pick<TombstoneCopy, "upToDate"> | undefined;
  /** True: homes leave out replies to those whom their users do not follow. */
  readonly judgesReplies: boolean;
}

/** Maximum number of pages in a call, which blocks Redis for about 2 ms. */
const PAGES_A_CALL = 32;

/**
 * Combines reads of one turn of the event loop, and those made while a call is under way, into the next call: no read
 * shares a call that began before it. Reads of one name share the answer; `begin` is called for the first of them.
 * Each node of a cluster has its own calls: nodes fail one by one.
 */
export function createPageCalls<Answer>(scripts: Scripts, options: PageCallsOptions) {
  const queues = new Map<string, Queue<Answer>>();
  const deps = { scripts, ...options, areAlive: createTombstoneCheck(scripts) };
  return (key: string, name: string, begin: Begin<Answer>): Promise<Answer> => {
    const node = scripts.nodeOf(key);
    const queue = queues.get(node) ?? new Queue<Answer>(deps, () => queues.delete(node));
    queues.set(node, queue);
    return queue.answer(name, begin);
  };
}

interface QueueDeps extends PageCallsOptions {
  readonly scripts: Scripts;
  readonly areAlive: ReturnType<typeof createTombstoneCheck>;
}

class Queue<Answer> {
  readonly #pending = new Map<string, PendingRead<Answer>>();
  #isBusy = false;

  constructor(
    private readonly deps: QueueDeps,
    private readonly idle: () => void,
  ) {}

  answer(name: string, begin: Begin<Answer>): Promise<Answer> {
    const shared = this.#pending.get(name)?.answer;
    if (shared) return shared;
    const answer = begin((read) => this.#add(name, read));
    const pending = this.#pending.get(name);
    if (pending) pending.answer = answer;
    return answer;
  }

  #add(name: string, read: StoreRead): Promise<Reply> {
    const pending = new PendingRead<Answer>(read);
    this.#pending.set(name, pending);
    if (!this.#isBusy) {
      this.#isBusy = true;
      setImmediate(() => this.#next());
    }
    return pending.reply;
  }

  /** Sends the next call before readers get their replies, so that Redis works meanwhile. */
  #next(): void {
    const reads: PendingRead<Answer>[] = [];
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

  async #call(reads: readonly PendingRead<Answer>[]): Promise<() => void> {
    const { scripts, cache, tombstones } = this.deps;
    const follows = reads.flatMap(({ read }) => read.follows);
    const fail = (error: unknown): void => {
      for (const { reject } of reads) reject(error);
    };
    const followed = follows.length > 0 && cache?.follow(follows);
    const known = tombstones?.upToDate();
    try {
      const replies = await this.#send(reads.map(({ read }) => read));
      const isFollowed = (await followed) === true;
      const settle = (all: readonly Unfollowed[]): void => {
        for (const [index, { resolve }] of reads.entries()) resolve({ ...(all[index] as Unfollowed), isFollowed });
      };
      if (!scripts.isCluster) return () => settle(replies);
      // The next call does not wait for the node of the tombstones.
      return () => void this.#checked(reads, replies, known).then(settle, fail);
    } catch (error) {
      return () => fail(error);
    }
  }

  /**
   * Compares replies to the tombstones, which are on another node of a cluster. A page that may show a deleted drop is
   * read again as entries.
   */
  async #checked(
    reads: readonly PendingRead<Answer>[],
    replies: readonly Unfollowed[],
    known: Promise<Tombstones | undefined> | undefined,
  ): Promise<readonly Unfollowed[]> {
    const tombstones = await known;
    const checked = replies.map((reply) => ({
      ...reply,
      areAlive: tombstones !== undefined && !mayShow(reply, tombstones),
    }));
    const open = [...checked.keys()].filter((index) => !checked[index]?.areAlive);
    if (open.length === 0) return checked;
    const alive = await this.deps
      .areAlive(open.map((index) => shownBy(replies[index] as Unfollowed)))
      .catch(() => undefined);
    for (const [n, index] of open.entries())
      checked[index] = { ...(replies[index] as Unfollowed), areAlive: alive?.[n] === true };
    const dead = open.filter((index) => checked[index]?.page && !checked[index].areAlive);
    if (dead.length === 0) return checked;
    const again = await this.#send(dead.map((index) => withoutPage((reads[index] as PendingRead<Answer>).read)));
    for (const [n, index] of dead.entries()) checked[index] = { ...(again[n] as Unfollowed), areAlive: false };
    return checked;
  }

  async #send(reads: readonly StoreRead[]): Promise<Unfollowed[]> {
    const { moreForReposts = 0, judgesReplies, scripts } = this.deps;
    const { byNode, isCluster, run } = scripts;
    const keys = reads.map(({ range }) => range.key);
    const answers = await byNode(keys, PAGES_A_CALL, (route, indexes) => {
      const args = indexes.flatMap((index) => argsOf(reads[index] as StoreRead));
      const before = [isCluster ? "" : 1, MAX_IDLE_MS, moreForReposts, judgesReplies ? 1 : 0];
      return run(READ_PAGE, route, [...before, ...args]) as Promise<Buffer[]>;
    });
    return inOrder(answers).map((text, index) => replyOf(text, reads[index] as StoreRead));
  }
}

const shownBy = ({ page, entries }: Unfollowed): readonly string[] =>
  page ? dropsOf(page) : entries.map(({ drop }) => drop);

const mayShow = ({ page, entries }: Unfollowed, tombstones: Tombstones): boolean =>
  page
    ? someDrop(page, (start, end) => tombstones.mayHave(page, start, end))
    : entries.some(({ drop }) => tombstones.mayHave(Buffer.from(drop)));

const withoutPage = ({ range: { page: _, ...range }, ...read }: StoreRead): StoreRead => ({ ...read, range });

function argsOf({ range, ttl, pulls, isJudged = false }: StoreRead): readonly (string | number)[] {
  const { key, direction, from, count, page } = range;
  const [drops, since] = from ? [0, 0] : [page?.drops ?? 0, page?.since ?? 0];
  return [key, direction, count, ttl, from?.score ?? "", from?.drop ?? "", pulls, drops, since, isJudged ? 1 : 0];
}

const WHOLE = { floor: 0, entries: [], areAlive: true, authors: [], hides: false, isRenewedSoon: false } as const;
const NOT_KNOWN = "?";
/** First byte of a reply with entries. A page begins with 0 or 1. */
const JSON_START = "[".charCodeAt(0);

type EntriesReply = readonly [
  ...[floor: string, alive: string, authors: string, hides: string, soon: string],
  bylines: "" | Readonly<Record<string, string>>,
  ...entries: string[],
];

const signed = (entries: readonly TimelineEntry[], bylines: ReadonlyMap<string, string>): TimelineEntry[] =>
  entries.map((entry) => {
    const text = bylines.get(entry.drop);
    return text === undefined ? entry : { ...entry, by: bylineOf(text) };
  });

function replyOf(text: Buffer, { range: { direction }, pulls }: StoreRead): Unfollowed {
  const isSetNamed = pulls !== "";
  if (text[0] !== JSON_START) return { ...WHOLE, isSetNamed, page: encodedPage(text) };
  const [floor, alive, authors, hides, soon, bylines, ...flat] = JSON.parse(text.toString()) as EntriesReply;
  const hasReposts = bylines !== "";
  const entries = hasReposts ? signed(entriesIn(flat), new Map(Object.entries(bylines))) : entriesIn(flat);
  if (direction === "older") entries.reverse();
  return {
    floor: floor === "" || Number(floor) < 0 ? undefined : Number(floor),
    entries,
    areAlive: alive === "1",
    authors: !isSetNamed || authors === NOT_KNOWN ? undefined : authors.split(",").filter(Boolean),
    isSetNamed,
    hides: hides === "1",
    isRenewedSoon: soon === "1",
    ...(hasReposts && { hasReposts }),
  };
}
