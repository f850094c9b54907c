import { ERASURE_PARTS, type ErasurePart } from "../../contracts/subjects.js";
import { chunked, mapLimited } from "../../kernel/concurrency.js";
import { AppError } from "../../kernel/errors.js";
import { decodeId, encodeId } from "../../kernel/ids.js";
import { SingleFlight } from "../../kernel/sharing.js";
import type { Bucket } from "../../platform/nats/bucket.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { ERASED_KEY, FLOOR_MEMBER } from "../keys.js";
import { unlessAway } from "../limits/limits.redis.js";
import { type Erased, type ErasureReport, isRemoteActor } from "./erasures.js";

const USER = "user.";
const userKey = (user: string): string => USER + encodeId(user);
const partKey = (part: ErasurePart): string => `part.${part}`;
const reportKey = (user: string, part: ErasurePart | "*"): string => `report.${encodeId(user)}.${part}`;
const LIFTED = "lifted.";
const liftedKey = (user: string): string => LIFTED + encodeId(user);

const USERS_A_CALL = 1_000;
const NO_USERS: ReadonlySet<string> = new Set();

/**
 * Opens the erased users. The member ~floor says that the key in Redis has all of them; the key is filled again from
 * the bucket. A user is written to the bucket first: either the filling reads it there, or it is added afterwards.
 */
export function createErased({ command }: Pick<Scripts, "command">, bucket: Bucket): Erased {
  const flight = new SingleFlight<boolean>();
  const add = (tokens: readonly string[]): Promise<unknown> =>
    command("zadd", (client) => client.zadd(ERASED_KEY, ...tokens.flatMap((token) => ["0", token])));
  /** Resolves to false while there is no bucket: nobody was ever erased. */
  const fill = async (): Promise<boolean> => {
    const keys = await bucket.keys(`${USER}*`);
    if (keys === undefined) return false;
    const tokens = keys.map((key) => key.slice(USER.length));
    for (const chunk of chunked(tokens, USERS_A_CALL)) await add(chunk);
    await add([FLOOR_MEMBER]);
    return true;
  };
  const lookAt = async (users: readonly string[]): Promise<readonly string[] | undefined> => {
    const [floor, ...scores] = await command("zmscore", (client) =>
      client.zmscore(ERASED_KEY, FLOOR_MEMBER, ...users.map(encodeId)),
    );
    return floor == null ? undefined : users.filter((_, index) => scores[index] != null);
  };
  const look = async (users: readonly string[]): Promise<ReadonlySet<string> | undefined> => {
    const parts = await Promise.all(chunked(users, USERS_A_CALL).map(lookAt));
    return parts.includes(undefined) ? undefined : new Set(parts.flatMap((part) => part ?? []));
  };
  return {
    async among(users) {
      if (users.length === 0) return NO_USERS;
      const erased = await look(users);
      if (erased) return erased;
      if (!(await flight.run("fill", fill))) return NO_USERS;
      const filled = await look(users);
      if (filled) return filled;
      throw new AppError("unavailable", "the erased users were lost again in Redis after they were read");
    },
    async record(user, version, admittedAt = Number.POSITIVE_INFINITY) {
      const lifted = isRemoteActor(user) ? await bucket.get(liftedKey(user)) : undefined;
      if (lifted !== undefined && admittedAt <= lifted.time) return false;
      await bucket.create(userKey(user), { version });
      await add([encodeId(user)]);
      return true;
    },
    announce: async (part) => void (await bucket.create(partKey(part), {})),
    report: (user, part, report) => bucket.put(reportKey(user, part), report),
    reports: (user) => readReports(bucket, user),
  };
}

async function readReports(bucket: Bucket, user: string): Promise<ReadonlyMap<ErasurePart, ErasureReport>> {
  const reportOf = async (part: ErasurePart): Promise<readonly [ErasurePart, ErasureReport][]> => {
    const [isHere, report] = await Promise.all([bucket.get(partKey(part)), bucket.get(reportKey(user, part))]);
    if (isHere === undefined) return [];
    return [[part, (report?.value ?? { done: false, left: 0 }) as ErasureReport]];
  };
  return new Map((await Promise.all(ERASURE_PARTS.map(reportOf))).flat());
}

/** Lifting of an erasure. `at` is in ms since the epoch. */
export interface Lifted {
  readonly at: number;
  readonly reason: string;
}

/** Lifts erasures in the bucket and in Redis. */
export const createLift = ({ command }: Pick<Scripts, "command">, bucket: Bucket) => ({
  /** Resolves to the time of the last entry about the erasure, in ms since the epoch; undefined without a marker. */
  lastStored: async (user: string): Promise<number | undefined> => {
    const keys = [userKey(user), ...ERASURE_PARTS.map((part) => reportKey(user, part))];
    const times = (await Promise.all(keys.map((key) => bucket.get(key)))).flatMap((entry) => entry?.time ?? []);
    return times.length === 0 ? undefined : Math.max(...times);
  },
  /**
   * Lifts an erasure: events of erasures that were admitted earlier are ignored. A later erasure must not find the
   * reports of this one.
   */
  lift: async (user: string, reason: string): Promise<void> => {
    await bucket.put(liftedKey(user), { reason });
    await bucket.purge(reportKey(user, "*"));
    await bucket.purge(userKey(user));
    await command("zrem", (client) => client.zrem(ERASED_KEY, encodeId(user)));
  },
});

const READS_AT_ONCE = 32;

/** Reads all erased users from the bucket, for display. Redis is not needed. */
export const createErasedList = (bucket: Bucket) => ({
  /** Resolves to the users who are erased, or whose erasure was lifted, the last one first. */
  users: async (): Promise<readonly string[]> => {
    const filters = [`${USER}*`, `${LIFTED}*`];
    const keys = (await Promise.all(filters.map(async (filter) => (await bucket.keys(filter)) ?? []))).flat();
    const entries = await mapLimited(keys, READS_AT_ONCE, async (key) => ({
      key,
      at: (await bucket.get(key))?.revision,
    }));
    const newest = entries.sort((a, b) => (b.at ?? 0) - (a.at ?? 0));
    return [...new Set(newest.map(({ key }) => decodeId(key.slice(key.indexOf(".") + 1))))];
  },
  lifted: async (user: string): Promise<Lifted | undefined> => {
    const lifted = await bucket.get(liftedKey(user));
    return lifted && { at: lifted.time, reason: (lifted.value as Pick<Lifted, "reason">).reason };
  },
  reports: (user: string) => readReports(bucket, user),
  isErased: async (user: string): Promise<boolean> => (await bucket.get(userKey(user))) !== undefined,
});

export const erasedUser = (): AppError => new AppError("gone", "the user is erased");

/** Returns a function that throws AppError `gone` for an erased user. While Redis is away nobody is refused. */
export const refuseErased =
  ({ among }: Pick<Erased, "among">) =>
  async (user: string): Promise<void> => {
    if ((await unlessAway(among([user])))?.has(user)) throw erasedUser();
  };
