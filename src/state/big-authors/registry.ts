import { AppError, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { coalesce } from "../../kernel/sharing.js";
import { DAY, SECOND } from "../../kernel/time.js";
import { observePulled } from "./observe.js";
import {
  type Due,
  isPushed,
  isSettled,
  MAX_COPY_AGE_MS,
  PULL_GRACE_MS,
  type Published,
  type PulledAuthor,
  type PullRegistry,
  type PullState,
} from "./pulled.js";
import { MAX_AUTHORS, MAX_DROPS_AN_HOUR, type PullStore, type Stored, type StoredState } from "./store.redis.js";

const MODES = ["push", "tier", "pull"] as const;
type Mode = (typeof MODES)[number];
export type ModeChoice = Mode | "auto";

/** Bounds above which an author is tiered or pulled. An infinite one is never reached. */
interface Thresholds {
  /** Number of followers. The same holds for `pull`. */
  readonly tier: number;
  readonly pull: number;
  /** Number of writes to homes an hour: drops times followers. */
  readonly pressure: number;
}

interface AuthorRegistryDeps {
  readonly store: PullStore;
  readonly thresholds: Thresholds;
  readonly graceMs?: number;
  /** Clock in ms, with any origin. */
  readonly clock?: () => number;
}

/** Share of a threshold. An author with fewer followers than that is pushed again. */
const HYSTERESIS = 0.8;
/**
 * Minimum time for which an author pulled by pressure stays pulled: a demotion writes more than an hour of pushed
 * drops.
 */
const PRESSED_MS = DAY;
const REFRESH_MS = SECOND;
const MAX_TRIES = 10;

export type AuthorRegistry = ReturnType<typeof createAuthorRegistry>;

export function createAuthorRegistry(deps: AuthorRegistryDeps) {
  const { store, thresholds, graceMs = PULL_GRACE_MS, clock = () => performance.now() } = deps;
  const registry = createCopy(store, clock);
  const { copy, refresh, change } = registry;
  const wanted = ({ author, followers, at: time }: Published, drops: number) =>
    wantedState(registry.authors().get(author), { followers, writes: drops * followers, time }, thresholds);
  /** Returns false for small authors, whose drops are not counted. */
  const mayPress = ({ followers }: Published): boolean =>
    followers * MAX_DROPS_AN_HOUR >= thresholds.pressure * HYSTERESIS;
  return {
    copy,
    refresh,
    /**
     * Changes states by the numbers of followers and of writes to their homes, unless an operator has chosen a state.
     */
    async updateStates(published: readonly Published[]): Promise<void> {
      const relevant = published.filter((each) => mayPress(each) || wanted(each, 0));
      const drops = await Promise.all(relevant.map(async (each) => (mayPress(each) ? store.countDrops(each) : 0)));
      for (const [index, each] of relevant.entries()) {
        const next = wanted(each, drops[index] as number);
        const from = registry.authors().get(each.author);
        if (next && (from || registry.authors().size < MAX_AUTHORS)) await change(each.author, from, next);
      }
    },
    /** Stores an operator's choice, which holds until `auto`. */
    async choose(author: string, choice: ModeChoice): Promise<StoredState | undefined> {
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        await refresh();
        const now = registry.authors().get(author);
        const next = chosen(now, choice);
        if (now?.state === next?.state && now?.by === next?.by) return now;
        if (await change(author, now, next)) return registry.authors().get(author);
      }
      throw new Error("the registry of pulled authors is full, or changes faster than it can be written");
    },
    /** Lists all authors with a state or a choice of an operator. */
    async list(): Promise<Stored["authors"]> {
      await refresh();
      return registry.authors();
    },
    /** Removes an erased author, in any state. */
    async forget(author: string): Promise<void> {
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        await refresh();
        const now = registry.authors().get(author);
        if (now === undefined || (await change(author, now, undefined))) return;
      }
      throw new AppError("unavailable", "the registry of pulled authors changes faster than it can be written");
    },
    /** Returns the authors whose next step may begin: no process uses an older copy of the registry any more. */
    async due(): Promise<Due[]> {
      const moving = [...(await refresh())].filter(([, { state }]) => !isSettled(state));
      if (moving.length === 0) return [];
      const time = await store.now();
      return moving.filter(([, { since }]) => time - since >= graceMs).map(([author, now]) => ({ author, ...now }));
    },
    /** Ends a step: the author gets the next state, or leaves the registry after `leaving`. */
    async proceed({ author, ...now }: Due): Promise<void> {
      const next = NEXT[now.state] ?? (now.by === "hand" ? "pushed" : undefined);
      await change(author, now, next && { state: next, by: now.by });
    },
    /** Repeats finished steps after Redis lost writes that it had confirmed: those of a step may be among them. */
    async beginAnew(): Promise<void> {
      await refresh();
      for (const [author, now] of registry.authors()) {
        const state = AFTER_LOSS[now.state];
        if (state !== now.state) await change(author, now, { state, by: now.by });
      }
    },
    follow(log: Logger): Loop {
      observePulled(copy);
      return startLoop({
        work: refresh,
        everyMs: REFRESH_MS,
        failed: (error) => log.warn({ error: oneLine(error) }, "the registry of pulled authors could not be read"),
        closeMs: SECOND,
      });
    },
  };
}

/** Holds the copy of this process. */
function createCopy(store: PullStore, clock: () => number) {
  let stored: Stored = { version: null, born: null, authors: new Map() };
  let pulled: PullRegistry = new Map();
  let readAt = Number.NEGATIVE_INFINITY;
  const refresh = coalesce(async () => {
    const began = clock();
    const { version, born } = await store.version();
    const isLost = stored.born !== null && born !== stored.born;
    if (isLost) await restore(store, stored.authors);
    if (isLost || version !== stored.version) {
      stored = await store.read();
      pulled = new Map(
        [...stored.authors].filter((entry): entry is [string, PulledAuthor] => entry[1].state !== "pushed"),
      );
    }
    readAt = began;
    return pulled;
  });
  return {
    /** Authors of the copy, including those that an operator keeps pushed. */
    authors: () => stored.authors,
    copy: () => (clock() - readAt <= MAX_COPY_AGE_MS ? pulled : undefined),
    refresh,
    change: async (
      author: string,
      from: StoredState | undefined,
      to: Omit<StoredState, "since"> | undefined,
    ): Promise<boolean> => {
      const changed = await store.change(author, from, to);
      await refresh();
      return changed;
    },
  };
}

type State = StoredState["state"];

/** Mode in which the author's drops are delivered now, or after the current step. */
const MODE_OF: Readonly<Record<State, Mode>> = {
  pushed: "push",
  leaving: "push",
  demoting: "push",
  lowering: "tier",
  tiering: "tier",
  tiered: "tier",
  promoting: "pull",
  pulled: "pull",
};

/** Returns the first state on the way to a mode, from any other state. */
function towards(mode: Mode, state: State): State {
  if (MODE_OF[state] === mode) return state;
  if (mode === "pull") return "promoting";
  if (mode === "tier") return isPushed(state) ? "tiering" : "lowering";
  return isPushed(state) ? "leaving" : "demoting";
}

interface Load {
  readonly followers: number;
  /** Number of writes to homes an hour. */
  readonly writes: number;
  /** Time, in ms since the epoch. */
  readonly time: number;
}

/** Returns the state that these followers and writes require, if it is not in force. */
function wantedState(
  stored: StoredState | undefined,
  { followers, writes, time }: Load,
  { tier, pull, pressure }: Thresholds,
): Omit<StoredState, "since"> | undefined {
  if (stored?.by === "hand") return undefined;
  const state = stored?.state ?? "pushed";
  const isAbove = (value: number, threshold: number, mode: Mode): boolean =>
    MODES.indexOf(MODE_OF[state]) < MODES.indexOf(mode) ? value > threshold : value >= threshold * HYSTERESIS;
  const byCount = isAbove(followers, pull, "pull") ? "pull" : isAbove(followers, tier, "tier") ? "tier" : "push";
  const stays = stored?.by === "pressure" && time - stored.since < PRESSED_MS;
  const mode = stays || isAbove(writes, pressure, "pull") ? "pull" : byCount;
  const next = towards(mode, state);
  return next === state ? undefined : { state: next, by: mode === byCount ? "count" : "pressure" };
}

/** Restarts the steps of a lost registry: the sets of pulled authors may be lost too. */
async function restore(store: PullStore, lost: Stored["authors"]): Promise<void> {
  for (const [author, { state, by }] of lost) await store.change(author, undefined, { state: AFTER_LOSS[state], by });
}

const AFTER_LOSS: Readonly<Record<State, State>> = {
  pushed: "pushed",
  promoting: "promoting",
  pulled: "promoting",
  lowering: "lowering",
  tiering: "tiering",
  tiered: "tiering",
  demoting: "demoting",
  leaving: "demoting",
};

const NEXT: Readonly<Partial<Record<PullState, PullState>>> = {
  promoting: "pulled",
  lowering: "tiering",
  tiering: "tiered",
  demoting: "leaving",
};

function chosen(stored: StoredState | undefined, choice: ModeChoice): Omit<StoredState, "since"> | undefined {
  const state = stored?.state ?? "pushed";
  if (choice === "auto") return state === "pushed" ? undefined : { state, by: "count" };
  return { state: towards(choice, state), by: "hand" };
}
