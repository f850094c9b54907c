import { randomUUID } from "node:crypto";
import {
  hostsOf,
  STANDINGS,
  type Standing,
  type StandingSubject,
  strictest,
  subjectToken,
} from "../../contracts/standings.js";
import type { Version } from "../../contracts/versions.js";
import { chunked } from "../../kernel/concurrency.js";
import { AppError } from "../../kernel/errors.js";
import { encodeId } from "../../kernel/ids.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop, warnOnce } from "../../kernel/loop.js";
import { coalesce } from "../../kernel/sharing.js";
import { SECOND, sharedNow } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { STANDINGS_KEY, STANDINGS_ORDER_KEY } from "../keys.js";
import { script } from "../scripts.redis.js";

const RECORD_STANDINGS = script("record-standings", import.meta.url);
const READ_STANDINGS = script("read-standings", import.meta.url);

export interface StandingChange extends StandingSubject {
  readonly standing: Standing;
  /** When it ends, ms since the epoch; 0: for good. */
  readonly until: number;
  readonly version: Version;
}

/** Yields pages of the standings that the users service has, with those that were lifted within the age of the log. */
export type ReadStandings = () => AsyncIterable<readonly StandingChange[]>;

/** Standings of users and hosts. Every process has a copy, which is a second old at most while Redis answers. */
export interface Standings {
  /** Returns the standing by the copy. A host's counts for its actors, if it is the stricter one. */
  of(user: string): Standing;
  /** Number of users and hosts that are limited or suspended. */
  readonly size: number;
  /** Number of those that are suspended. */
  readonly suspended: number;
  /** Number of changes of the copy since the start, also by ends. */
  readonly changes: number;
  /** Records changes; the newest version of each subject counts. */
  record(changes: readonly StandingChange[]): Promise<void>;
  /** Reads the standings of users from Redis, in the same order, without those of their hosts. */
  stored(users: readonly string[]): Promise<readonly Current[]>;
  /** Counts as a change of these users: copies read them again. */
  touch(users: readonly string[]): Promise<void>;
  /** Reads what has changed into the copy. */
  refresh(): Promise<void>;
  /** Refreshes the copy. */
  follow(log: Logger): Loop;
  /** Fills Redis from the users service if it has lost the standings, or never had them. */
  startFill(log: Logger, read: ReadStandings, veil: VeilUsers): Loop;
}

/** Hides drops that homes have of suspended users. Resolves to those for whom that failed. */
export type VeilUsers = (users: readonly string[]) => Promise<readonly string[]>;

const REFRESH_MS = SECOND;
const CHANGES_A_CALL = 1_000;
const KEYS = [STANDINGS_KEY, STANDINGS_ORDER_KEY] as const;

export interface Current {
  readonly standing: Standing;
  readonly until: number;
}

/** Holds the copy of this process. */
function createCopy({ run }: Pick<Scripts, "run">) {
  let known = { born: "", last: "0", isComplete: false };
  /** Standings read from the hash `known.born`. */
  let stored = new Map<string, Current>();
  /** While Redis has not all of them again, with those of the hash before. */
  let copy: ReadonlyMap<string, Current> = stored;
  let hasHosts = false;
  let suspended = 0;
  /** When the next standing of the copy ends, ms since the epoch. */
  let nextEnd = Number.POSITIVE_INFINITY;
  let changes = 0;
  const readChanges = async (): Promise<boolean> => {
    const answer = (await run(READ_STANDINGS, KEYS, [known.born, known.last, CHANGES_A_CALL])) as string[];
    const [born = "", complete, last = "0", ...fields] = answer;
    if (born !== known.born) stored = new Map();
    known = { born, last, isComplete: complete === "1" };
    for (let index = 0; index < fields.length; index += 2) {
      stored.set(fields[index] as string, currentOf(fields[index + 1] as string));
      changes++;
    }
    return fields.length === 2 * CHANGES_A_CALL;
  };
  const standingOf = (subject: string): Standing => {
    const current = copy.get(subject);
    return current !== undefined && endOf(current) > sharedNow() ? current.standing : "active";
  };
  return {
    refresh: coalesce(async () => {
      const before = { changes, ...known };
      while (await readChanges());
      const now = sharedNow();
      const isSame = before.changes === changes && before.born === known.born && before.isComplete === known.isComplete;
      if (isSame && now < nextEnd) return;
      changes++;
      const all = known.isComplete ? stored : new Map([...copy, ...stored]);
      copy = new Map([...all].filter(([, current]) => current.standing !== "active" && endOf(current) > now));
      nextEnd = [...copy.values()].reduce(
        (first, current) => Math.min(first, endOf(current)),
        Number.POSITIVE_INFINITY,
      );
      suspended = [...copy.values()].filter(({ standing }) => standing === "suspended").length;
      hasHosts = [...copy.keys()].some((subject) => subject.startsWith("@"));
    }),
    of: (user: string): Standing => {
      if (copy.size === 0) return "active";
      const standing = standingOf(encodeId(user));
      if (!hasHosts) return standing;
      return strictest([standing, ...hostsOf(user).map((host) => standingOf(`@${host}`))]);
    },
    known: () => known,
    size: () => copy.size,
    suspended: () => suspended,
    changes: () => changes,
  };
}

export function createStandings({ run, command }: Pick<Scripts, "run" | "command">): Standings {
  const copy = createCopy({ run });
  const { refresh } = copy;
  const record = async (all: readonly StandingChange[], isComplete = false): Promise<void> => {
    for (const chunk of all.length === 0 ? [[]] : chunked(all, CHANGES_A_CALL)) {
      const fields = chunk.flatMap(({ version, standing, until, ...subject }) => [
        ...[subjectToken(subject), version, standing, until],
      ]);
      await run(RECORD_STANDINGS, KEYS, [randomUUID(), isComplete ? "1" : "", ...fields]);
    }
  };
  const loop = (log: Logger, work: () => Promise<void>, line: string): Loop =>
    startLoop({ work, everyMs: REFRESH_MS, failed: warnOnce(log, line), closeMs: SECOND });
  return {
    of: copy.of,
    refresh,
    get size() {
      return copy.size();
    },
    get suspended() {
      return copy.suspended();
    },
    get changes() {
      return copy.changes();
    },
    record: (all) => record(all),
    async stored(users) {
      if (users.length === 0) return [];
      const values = await command("hmget", (client) => client.hmget(STANDINGS_KEY, ...users.map(encodeId)));
      return values.map((value) => currentOf(value ?? ":active:0"));
    },
    async touch(users) {
      for (const chunk of chunked(users, CHANGES_A_CALL))
        await run(RECORD_STANDINGS, KEYS, [randomUUID(), "", ...chunk.flatMap((user) => [encodeId(user), "", "", ""])]);
    },
    follow: (log) => loop(log, refresh, "the standings of users could not be read; those known last count"),
    startFill: (log, read, veil) => {
      let recorded: { readonly born: string; unveiled: readonly string[] } | undefined;
      const recordAll = async (): Promise<void> => {
        await record([]);
        await refresh();
        const { born } = copy.known();
        const suspended = new Set<string>();
        for await (const page of read()) {
          await record(page);
          for (const { user_id, standing } of page) if (user_id && standing === "suspended") suspended.add(user_id);
        }
        recorded = { born, unveiled: [...suspended] };
      };
      // Standings are in force from their record on, although the drops of some users cannot be read yet. The fill is
      // complete only when all are veiled, so that another process goes on with it.
      const work = async (): Promise<void> => {
        await refresh();
        if (copy.known().isComplete) return;
        if (recorded?.born !== copy.known().born) await recordAll();
        if (!recorded) return;
        recorded.unveiled = await veil(recorded.unveiled);
        const { length } = recorded.unveiled;
        if (length > 0) throw new AppError("unavailable", `the drops of ${length} suspended users could not be hidden`);
        await refresh();
        if (recorded.born === copy.known().born) await record([], true);
        recorded = undefined;
      };
      return loop(log, work, "the standings of users could not all be applied; it is tried again");
    },
  };
}

const endOf = ({ until }: Current): number => (until === 0 ? Number.POSITIVE_INFINITY : until);

/** A standing that a newer version may have written counts as the strictest. */
function currentOf(value: string): Current {
  const [, standing = "", until] = value.split(":");
  const isKnown = (STANDINGS as readonly string[]).includes(standing);
  return { standing: isKnown ? (standing as Standing) : "suspended", until: Number(until ?? 0) };
}
