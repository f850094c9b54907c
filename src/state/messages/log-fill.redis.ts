import { CLOCK_SKEW_MS, LOG_AGE_MS } from "../../contracts/times.js";
import type { Lease } from "../../kernel/lease.js";
import { HOUR, SECOND, sharedNow } from "../../kernel/time.js";
import type { RedisClient } from "../../platform/redis/clusters.js";
import { createLease } from "../../platform/redis/lease.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { FILL_KEY, fillLeaseKey } from "../keys.js";

/**
 * A fill of the log with the changes that the upstreams list of the time before it. Times are in ms since the epoch.
 */
export interface LogFill {
  readonly id: string;
  /** `first`: the log is new beside upstreams with a history; `lost`: an earlier log was lost. */
  readonly why: "first" | "lost";
  /** Creation time of the log. */
  readonly log: string;
  readonly since: number;
  readonly until: number;
  readonly started: number;
  /** Number of changes in each window that is done. */
  readonly done: ReadonlyMap<number, number>;
}

/** Width of a window. A process that dies repeats one. */
export const FILL_WINDOW_MS = HOUR;

/** Returns the number of windows, counted from the newest. The last one is the time that the fill itself took. */
export const windowsOf = ({ since, until }: LogFill): number => Math.ceil((until - since) / FILL_WINDOW_MS) + 1;

export const isFilled = (fill: LogFill): boolean => fill.done.size >= windowsOf(fill);

export function windowRange(fill: LogFill, window: number): { readonly since: number; readonly until: number } {
  const isLast = window === windowsOf(fill) - 1;
  if (isLast) return { since: fill.started - CLOCK_SKEW_MS, until: sharedNow() + CLOCK_SKEW_MS };
  const until = fill.until - window * FILL_WINDOW_MS;
  return { since: Math.max(fill.since, until - FILL_WINDOW_MS), until };
}

/** Returns the progress of a fill, as the log, doctor and the console show it. */
export function fillAsJson(fill: LogFill) {
  const windows = windowsOf(fill);
  const first = Array.from({ length: windows }, (_, window) => window).find((window) => !fill.done.has(window));
  const seconds = Math.max(0, Math.round((sharedNow() - fill.started) / SECOND));
  return {
    why: fill.why,
    percent: Math.floor((100 * fill.done.size) / windows),
    changes: [...fill.done.values()].reduce((sum, changes) => sum + changes, 0),
    /** All changes since this time are in the log. */
    back_to: first === undefined ? fill.since : Math.min(windowRange(fill, first).until, fill.until),
    seconds,
    seconds_left: fill.done.size === 0 ? null : Math.round((seconds * (windows - fill.done.size)) / fill.done.size),
  };
}

const NAMES = { first: "first fill", lost: "fill after a loss" } as const;

/** Returns a line such as "first fill: 34 %, 20400 changes, back to 2026-11-22T10:00:00.000Z, about 120 s left". */
export function fillAsText(fill: LogFill): string {
  const { percent, changes, back_to, seconds_left } = fillAsJson(fill);
  if (isFilled(fill)) return `${NAMES[fill.why]}: done, ${changes} changes`;
  const rest = seconds_left === null ? "" : `, about ${seconds_left} s left`;
  return `${NAMES[fill.why]}: ${percent} %, ${changes} changes, back to ${new Date(back_to).toISOString()}${rest}`;
}

/** Resolves to the fill over a client that no role has opened. @throws the error of Redis */
export const readFill = async (client: Pick<RedisClient, "hgetall">): Promise<LogFill | undefined> =>
  fillOf(await client.hgetall(FILL_KEY));

export type FillStore = ReturnType<typeof createFillStore>;

export function createFillStore(scripts: Scripts) {
  const { command } = scripts;
  const keep = () => command("pexpire", (client) => client.pexpire(FILL_KEY, LOG_AGE_MS));
  return {
    async begin(fill: LogFill): Promise<void> {
      const { done, ...fields } = fill;
      const windows = [...done].map(([window, changes]) => [doneField(fill.id, window), changes] as const);
      await command("del", (client) => client.del(FILL_KEY));
      await command("hset", (client) => client.hset(FILL_KEY, { ...fields, ...Object.fromEntries(windows) }));
      await keep();
    },
    read: async (): Promise<LogFill | undefined> =>
      fillOf(await command("hgetall", (client) => client.hgetall(FILL_KEY))),
    async finish({ id }: LogFill, window: number, changes: number): Promise<void> {
      await command("hset", (client) => client.hset(FILL_KEY, doneField(id, window), changes));
      await keep();
    },
    lease: (window: number): Lease => createLease(scripts, fillLeaseKey(window)),
  };
}

const doneField = (id: string, window: number): string => `${id}:${window}`;

/** Returns the fill that is stored in these fields of the hash. */
function fillOf(fields: Readonly<Record<string, string>>): LogFill | undefined {
  const { id, why, log, since, until, started } = fields;
  if (id === undefined || log === undefined) return undefined;
  const done = Object.entries(fields).flatMap(([field, changes]) =>
    field.startsWith(`${id}:`) ? [[Number(field.slice(id.length + 1)), Number(changes)] as const] : [],
  );
  const times = { since: Number(since), until: Number(until), started: Number(started) };
  return { id, why: why === "lost" ? "lost" : "first", log, ...times, done: new Map(done) };
}
