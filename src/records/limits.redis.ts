import { randomBytes } from "node:crypto";
import { limitKey } from "../contracts/keys.js";
import type { LimitKind } from "../contracts/limits.js";
import { AppError, codeOf } from "../kernel/errors.js";
import { SECOND } from "../kernel/time.js";
import type { Limit } from "../kernel/variables.js";
import { type Scripts, script } from "../platform/redis/scripts.js";
import { observeLimits } from "./observe.js";

const TAKE_PLACE = script("take-place", import.meta.url);

/** A server that hangs must not hold up an answer: it is given up after so many turns of a timer. */
const MAX_TURNS = 5;
const TURN_MS = SECOND / 20;

/** A sliding window by the clock of Redis, for all processes together. */
export interface Window {
  readonly key: string;
  readonly most: number;
  readonly withinMs: number;
}

interface Seen {
  readonly used: number;
  /** Until one of the places, or where all are used until room for another, is free: ms, 0 where none is used. */
  readonly waitMs: number;
}

export interface Taken {
  /** The place is taken now, or was before. */
  readonly taken: boolean;
  /** They are in the order of the windows. */
  readonly seen: readonly Seen[];
}

/**
 * Takes a place in all windows, or in none if one is full. An empty place only looks. `now` is in ms since the epoch;
 * unset: the clock of Redis. @throws AppError `unavailable` while Redis is away
 */
export async function takePlace(
  { run }: Pick<Scripts, "run">,
  windows: readonly Window[],
  place: string,
  now?: number,
): Promise<Taken> {
  const sizes = windows.flatMap(({ most, withinMs }) => [most, withinMs]);
  const keys = windows.map(({ key }) => key);
  const [taken, ...rest] = (await run(TAKE_PLACE, keys, [place, now ?? "", ...sizes])) as number[];
  const seen = windows.map((_, index) => ({ used: rest[2 * index] ?? 0, waitMs: rest[2 * index + 1] ?? 0 }));
  return { taken: taken === 1, seen };
}

export async function freePlace(
  { command }: Pick<Scripts, "command">,
  windows: readonly Pick<Window, "key">[],
  place: string,
): Promise<void> {
  await Promise.all(windows.map(({ key }) => command("zrem", (client) => client.zrem(key, place))));
}

/**
 * Resolves to undefined while Redis is away, or does not answer within a quarter of a second. Time in which this process
 * stands still counts as one turn: the answer may have come, and is read after it.
 */
export const unlessAway = <T>(work: Promise<T>): Promise<T | undefined> =>
  new Promise((resolve, reject) => {
    let turns = 0;
    const timer = setInterval(() => {
      if (++turns === MAX_TURNS) resolve(undefined);
    }, TURN_MS);
    const failed = (error: unknown): void => (codeOf(error) === "unavailable" ? resolve(undefined) : reject(error));
    work.then(resolve, failed).finally(() => clearInterval(timer));
  });

/** A user does one thing; `of` narrows it to those of one sort. */
export interface Use {
  readonly kind: LimitKind;
  readonly user: string;
  readonly of?: string;
  readonly limit: Limit | undefined;
}

export interface LimitedWrite<Result> {
  readonly write: () => Promise<Result>;
  /** Tells of a result whether something has changed: else the write does not count. */
  readonly changed: (result: Result) => boolean;
  /** Asked at a limit: a write that would change nothing is not refused. */
  readonly changesNothing: () => Promise<boolean>;
}

/** @throws AppError `exhausted` past a limit, with the time to wait */
export type Limited = <Result>(uses: readonly Use[], work: LimitedWrite<Result>) => Promise<Result>;

const WORDS: Readonly<Record<LimitKind, string>> = {
  drops: "drops",
  "same-body": "drops with the same text for the same people",
  follows: "follows",
  reactions: "likes and shares",
};

/**
 * A write takes its place before it begins, and gives it back where it changed nothing. While Redis is away nothing is
 * refused.
 */
export function createLimits(scripts: Scripts) {
  observeLimits.started();
  const givingBack = new Set<Promise<unknown>>();
  const giveBack = (windows: readonly Window[], place: string): void => {
    const given = unlessAway(freePlace(scripts, windows, place))
      .catch(() => undefined)
      .finally(() => givingBack.delete(given));
    givingBack.add(given);
  };
  const limited: Limited = async (uses, { write, changed, changesNothing }) => {
    const windows = uses.flatMap(windowsOf);
    if (windows.length === 0) return write();
    const place = randomBytes(9).toString("base64url");
    const reply = await unlessAway(takePlace(scripts, windows, place));
    if (reply === undefined) for (const { kind } of windows) observeLimits.uncounted(kind);
    if (reply?.taken === false) {
      if (await changesNothing()) return write();
      throw refusal(windows, reply.seen);
    }
    let counts = false;
    try {
      const result = await write();
      counts = changed(result);
      return result;
    } finally {
      if (!counts) giveBack(windows, place);
    }
  };
  return {
    limited,
    close: async (): Promise<void> => void (await Promise.all(givingBack)),
  };
}

type LimitedWindow = Window & Pick<Use, "kind"> & Pick<Limit, "within">;

const windowsOf = ({ kind, user, of, limit }: Use): LimitedWindow[] =>
  limit === undefined ? [] : [{ key: limitKey(kind, user, of), kind, ...limit }];

/** Names the limit that is reached for the longest time. */
function refusal(windows: readonly LimitedWindow[], seen: readonly Seen[]): AppError {
  const full = windows
    .map((window, index) => ({ ...window, ...(seen[index] as Seen) }))
    .filter(({ used, most }) => used >= most)
    .sort((a, b) => b.waitMs - a.waitMs);
  const { kind, most, within, waitMs } = full[0] as (typeof full)[number];
  observeLimits.refused(kind);
  return new AppError("exhausted", `at most ${most} ${WORDS[kind]} within ${within}`, { retryAfterMs: waitMs });
}
