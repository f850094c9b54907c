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
import { decodeId, encodeId } from "../../kernel/ids.js";
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
  /** True while Redis has lost what the copy has: not all drops of the suspended are hidden in homes. */
  readonly isLost: boolean;
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
/** Maximum time until a fill asks again for the drops of users that could not be read, ms. */
const FILL_BACKOFF_MS = 10 * SECOND;
const CHANGES_A_CALL = 1_000;
const KEYS = [STANDINGS_KEY, STANDINGS_ORDER_KEY] as const;

export interface Current {
  readonly standing: Standing;
  readonly until: number;
}

/** Standings in force. */
class InForce {
  suspended = 0;
  readonly #users = new Map<string, Current>();
  readonly #hosts = new Map<string, Current>();
  /** When the next one ends, ms since the epoch. */
  #nextEnd = Number.POSITIVE_INFINITY;

  get size(): number {
    return this.#users.size + this.#hosts.size;
  }

  set(subject: string, current: Current): void {
    const isHost = subject.startsWith("@");
    const [group, name] = isHost ? [this.#hosts, subject.slice(1)] : [this.#users, decodeId(subject)];
    if (group.get(name)?.standing === "suspended") this.suspended--;
    group.delete(name);
    if (current.standing === "active" || endOf(current) <= sharedNow()) return;
    group.set(name, current);
    if (current.standing === "suspended") this.suspended++;
    this.#nextEnd = Math.min(this.#nextEnd, endOf(current));
  }

  of(user: string): Standing {
    const standing = standingIn(this.#users, user);
    if (this.#hosts.size === 0) return standing;
    return strictest([standing, ...hostsOf(user).map((host) => standingIn(this.#hosts, host))]);
  }

  /** Removes those that have ended. Returns false if there are none. */
  end(): boolean {
    const now = sharedNow();
    if (now < this.#nextEnd) return false;
    this.#nextEnd = Number.POSITIVE_INFINITY;
    for (const group of [this.#users, this.#hosts])
      for (const [name, current] of group) {
        if (endOf(current) > now) this.#nextEnd = Math.min(this.#nextEnd, endOf(current));
        else if (group.delete(name) && current.standing === "suspended") this.suspended--;
      }
    return true;
  }
}

function standingIn(group: ReadonlyMap<string, Current>, name: string): Standing {
  const current = group.get(name);
  return current !== undefined && endOf(current) > sharedNow() ? current.standing : "active";
}

/** Holds the copy of this process, to which a refresh adds what has changed. */
function createCopy({ run }: Pick<Scripts, "run">) {
  let known = { born: "", last: "0", isComplete: false };
  /** Standings read from the hash `known.born`. */
  let stored = new InForce();
  /** While Redis has not all of them again, those of the hash before count, too. */
  let copy = new InForce();
  let isLost = false;
  let changes = 0;
  const readChanges = async (): Promise<boolean> => {
    const answer = (await run(READ_STANDINGS, KEYS, [known.born, known.last, CHANGES_A_CALL])) as string[];
    const [born = "", complete, last = "0", ...fields] = answer;
    if (born !== known.born) {
      stored = new InForce();
      isLost = copy.size > 0;
      changes++;
    }
    known = { born, last, isComplete: complete === "1" };
    for (let index = 0; index < fields.length; index += 2) {
      const [subject, current] = [fields[index] as string, currentOf(fields[index + 1] as string)];
      for (const group of new Set([stored, copy])) group.set(subject, current);
      changes++;
    }
    return fields.length === 2 * CHANGES_A_CALL;
  };
  return {
    refresh: coalesce(async () => {
      while (await readChanges());
      if (known.isComplete && copy !== stored) {
        copy = stored;
        isLost = false;
        changes++;
      }
      if (copy.end()) changes++;
    }),
    of: (user: string): Standing => copy.of(user),
    known: () => known,
    size: () => copy.size,
    suspended: () => copy.suspended,
    isLost: () => isLost,
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
  const loop = (log: Logger, work: () => Promise<void>, line: string, more: { backoffCapMs?: number } = {}): Loop =>
    startLoop({ work, everyMs: REFRESH_MS, failed: warnOnce(log, line), closeMs: SECOND, ...more });
  return {
    of: copy.of,
    refresh,
    get size() {
      return copy.size();
    },
    get suspended() {
      return copy.suspended();
    },
    get isLost() {
      return copy.isLost();
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
      const line = "the standings of users could not all be applied; it is tried again";
      return loop(log, work, line, { backoffCapMs: FILL_BACKOFF_MS });
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
