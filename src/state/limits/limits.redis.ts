import { randomBytes } from "node:crypto";
import type { LimitKind } from "../../contracts/limits.js";
import { AppError, codeOf } from "../../kernel/errors.js";
import { backoff, countdown, pause, SECOND } from "../../kernel/time.js";
import type { Limit } from "../../kernel/variables.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { limitKey } from "../keys.js";
import { observeLimits } from "../observe.js";
import { script } from "../scripts.redis.js";

const RESERVE = script("reserve", import.meta.url);
const SETTLE = script("settle", import.meta.url);

/** Maximum number of turns of a timer for which an answer waits: a server that hangs must not delay it for longer. */
const MAX_TURNS = 5;
const TURN_MS = SECOND / 20;

/**
 * Maximum time that a write waits for other writes of the user that may not count in the end. reserve.lua has it, too.
 */
const MAX_WAIT_MS = 10 * SECOND;
const WAIT_BASE_MS = 20;
const WAIT_CAP_MS = 200;

/** Maximum number of writes that wait to be settled again, after Redis did not answer. */
const MOST_SETTLED_AGAIN = 1_000;

/** Sliding window by the clock of Redis, for all processes together. */
export interface Window {
  readonly key: string;
  readonly most: number;
  readonly withinMs: number;
  /** For how many a reservation counts. Default: 1. */
  readonly count?: number | undefined;
}

interface Seen {
  readonly used: number;
  /** Time until a reservation leaves the window, or if it is full until there is room for another, ms; 0 if there is none. */
  readonly waitMs: number;
}

export interface Reserved {
  /** True if the reservation is made now, or was made earlier. */
  readonly reserved: boolean;
  /** True if there may be room when a write under way ends. */
  readonly mayBeFree: boolean;
  /** Use of each window, in their order. */
  readonly seen: readonly Seen[];
}

/**
 * Makes a reservation in all windows, or in none if one is full. An empty one only looks. `now` is in ms since the epoch;
 * default: the clock of Redis.
 *
 * @throws AppError `unavailable` while Redis is away
 */
export async function reserve(
  { run }: Pick<Scripts, "run">,
  windows: readonly Window[],
  reservation: string,
  now?: number,
): Promise<Reserved> {
  const sizes = windows.flatMap(({ most, withinMs, count = 1 }) => [most, withinMs, count]);
  const keys = windows.map(({ key }) => key);
  const [reply, ...rest] = (await run(RESERVE, keys, [reservation, now ?? "", ...sizes])) as number[];
  const seen = windows.map((_, index) => ({ used: rest[2 * index] ?? 0, waitMs: rest[2 * index + 1] ?? 0 }));
  return { reserved: reply === 1, mayBeFree: reply === 2, seen };
}

export async function release(
  { command }: Pick<Scripts, "command">,
  windows: readonly Pick<Window, "key">[],
  reservation: string,
): Promise<void> {
  await Promise.all(windows.map(({ key }) => command("zrem", (client) => client.zrem(key, reservation))));
}

/**
 * Resolves to undefined while Redis is away, or does not answer within a quarter of a second. Time in which this
 * process stands still counts as one turn: the answer may have come, and is read after it.
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

/** One action of a user. `subject` narrows the limit to actions with the same subject. */
export interface Use {
  readonly kind: LimitKind;
  readonly user: string;
  readonly subject?: string;
  readonly limit: Limit | undefined;
  /** For how many the action counts at most. Default: 1. */
  readonly count?: number;
}

export interface LimitedWrite<Result> {
  readonly write: () => Promise<Result>;
  /** Returns true, or for how many a result counts, if it has changed something; otherwise the write does not count. */
  readonly changed: (result: Result) => boolean | number;
  /** Called at a limit: a write that would change nothing is not refused. */
  readonly changesNothing: () => Promise<boolean>;
}

/** @throws AppError `exhausted` past a limit, with the time to wait */
export type Limited = <Result>(uses: readonly Use[], work: LimitedWrite<Result>) => Promise<Result>;

const WORDS: Readonly<Record<LimitKind, string>> = {
  drops: "drops",
  "same-body": "drops with the same text for the same people",
  follows: "follows",
  members: "new members of lists",
  reactions: "likes and shares",
};

/**
 * Limits writes. A write makes a reservation before it begins, and releases it if it changed nothing. Until then it is
 * provisional: at a limit that only writes under way have reached, others wait for their end. While Redis is away
 * nothing is refused.
 */
export function createLimits(scripts: Scripts) {
  observeLimits.started();
  const settling = new Set<Promise<unknown>>();
  const closing = new AbortController();
  /** A reservation that is not settled counts later: one that does not count is released again and again for some time. */
  const untilSettled = async (windows: readonly Window[], reservation: string, counted: number): Promise<void> => {
    const keys = windows.map(({ key }) => key);
    const counts = counted > 0;
    const sizes = windows.flatMap(({ count = 1 }) => [Math.min(counted, count), count]);
    const msLeft = countdown(MAX_WAIT_MS);
    for (let attempt = 1; ; attempt++) {
      const settled = await unlessAway(scripts.run(SETTLE, keys, [reservation, ...sizes]));
      const mayTry = msLeft() > 0 && !closing.signal.aborted && settling.size < MOST_SETTLED_AGAIN;
      if (settled !== undefined || counts || !mayTry) return;
      await pause(backoff(attempt, WAIT_CAP_MS, SECOND), closing.signal);
    }
  };
  const settle = (...args: Parameters<typeof untilSettled>): void => {
    const settled = untilSettled(...args)
      .catch(() => undefined)
      .finally(() => settling.delete(settled));
    settling.add(settled);
  };
  const limited: Limited = async (uses, work) => {
    const windows = uses.flatMap(windowsOf);
    if (windows.length === 0) return work.write();
    const reservation = randomBytes(9).toString("base64url");
    if (!(await isCounted(scripts, windows, { reservation, changesNothing: work.changesNothing }))) return work.write();
    let counts = 0;
    try {
      const result = await work.write();
      counts = Number(work.changed(result));
      return result;
    } finally {
      settle(windows, reservation, counts);
    }
  };
  return {
    limited,
    close: async (): Promise<void> => {
      closing.abort();
      await Promise.all(settling);
    },
  };
}

/**
 * Resolves to false if the write needs no reservation.
 *
 * @throws AppError `exhausted` past a limit
 */
async function isCounted(
  scripts: Scripts,
  windows: readonly LimitedWindow[],
  { reservation, changesNothing }: { readonly reservation: string } & Pick<LimitedWrite<unknown>, "changesNothing">,
): Promise<boolean> {
  const msLeft = countdown(MAX_WAIT_MS);
  for (let attempt = 1; ; attempt++) {
    const reply = await unlessAway(reserve(scripts, windows, `~${reservation}`));
    if (reply === undefined) for (const { kind } of windows) observeLimits.uncounted(kind);
    if (reply?.reserved !== false) return true;
    if (await changesNothing()) return false;
    if (!reply.mayBeFree) throw refusal(windows, reply.seen);
    if (msLeft() === 0) throw new AppError("unavailable", "other writes of the user are under way");
    await pause(backoff(attempt, WAIT_BASE_MS, WAIT_CAP_MS));
  }
}

type LimitedWindow = Window & Pick<Use, "kind"> & Pick<Limit, "within">;

const windowsOf = ({ kind, user, subject, limit, count }: Use): LimitedWindow[] =>
  limit === undefined ? [] : [{ key: limitKey(kind, user, subject), kind, count, ...limit }];

/** Returns an error for the full window with the longest wait. */
function refusal(windows: readonly LimitedWindow[], seen: readonly Seen[]): AppError {
  const full = windows
    .map((window, index) => ({ ...window, ...(seen[index] as Seen) }))
    .filter(({ used, most, count = 1 }) => used + count > most)
    .sort((a, b) => b.waitMs - a.waitMs);
  const { kind, most, within, waitMs } = full[0] as (typeof full)[number];
  observeLimits.refused(kind);
  return new AppError("exhausted", `at most ${most} ${WORDS[kind]} within ${within}`, { retryAfterMs: waitMs });
}
