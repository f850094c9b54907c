import type { HiddenUser, Relation } from "../../gen/avion/users.js";
import { idFault } from "../../kernel/ids.js";
import { readPages } from "../../kernel/paging.js";
import { createBatch } from "../../kernel/sharing.js";
import { MINUTE, SECOND, sharedNow } from "../../kernel/time.js";
import { isUnimplemented, refusalOfUser, type Upstreams } from "../../upstreams/upstreams.grpc.js";
import type { Hiding, TimedHiding } from "./hidden.js";
import type { ReadHidden } from "./hidden.redis.js";

const HIDDEN_A_PAGE = 1_000;
const USERS_A_CALL = 256;
/** Half of the time for which fan-out waits: then users without an answer are read one by one. */
const TOGETHER_MS = SECOND / 8;
const LACKS_METHOD_MS = MINUTE;

type Read = Pick<Upstreams, "hidden" | "leaveOut">;

/** Reads the hidden users of a user. A users service without GetHidden hides nobody. */
export function createReadHidden(upstreams: Read): ReadHidden {
  return async function* (user) {
    const read = (token: string) => upstreams.hidden({ user, token, size: HIDDEN_A_PAGE });
    try {
      for await (const { hidden } of readPages(read)) yield pageOf(upstreams, user, hidden);
    } catch (error) {
      if (!isUnimplemented(error)) throw refusalOfUser(error);
    }
  };
}

/**
 * Reads the hidden users of all users asked about at the same time in one call. A user whom the answer omits is read
 * alone. After a call that fails, or takes longer than `patienceMs`, all users are read alone for as long as it took.
 */
export function createReadHiddenTogether(
  upstreams: Read & Pick<Upstreams, "hiddenOfMany">,
  patienceMs = TOGETHER_MS,
): ReadHidden {
  const readAlone = createReadHidden(upstreams);
  let aloneUntil = Number.NEGATIVE_INFINITY;
  const readTogether = createBatch<string, readonly HiddenUser[] | undefined>(USERS_A_CALL, async (users) => {
    const begunAt = performance.now();
    if (users.length === 1 || begunAt < aloneUntil) return [];
    try {
      const answers = await upstreams.hiddenOfMany(users, Date.now() + patienceMs);
      return users.map((user) => answers.get(user));
    } catch (error) {
      const endedAt = performance.now();
      aloneUntil = endedAt + (isUnimplemented(error) ? LACKS_METHOD_MS : endedAt - begunAt);
      return [];
    }
  });
  return async function* (user) {
    const hidden = await readTogether(user);
    if (hidden) yield pageOf(upstreams, user, hidden);
    else yield* readAlone(user);
  };
}

const hasEnded = (expiresAt: number): boolean => expiresAt !== 0 && expiresAt <= sharedNow();

function pageOf({ leaveOut }: Read, user: string, hidden: readonly HiddenUser[]) {
  const hidings = new Map<string, Hiding>();
  const ends: number[] = [];
  for (const { target_id, reposts_only, expires_at, blocked } of hidden) {
    if (idFault(target_id) !== undefined) leaveOut("GetHidden", user);
    else if (blocked) hidings.set(target_id, "all");
    else if (hasEnded(expires_at)) continue;
    else {
      if (expires_at !== 0) ends.push(expires_at);
      if (hidings.get(target_id) !== "all") hidings.set(target_id, reposts_only ? "reposts" : "all");
    }
  }
  return { hidings, until: ends.length === 0 ? undefined : Math.min(...ends) };
}

/** Reads relations to at most 1,000 targets. Resolves to undefined if the users service has no GetRelations. */
export const createReadHidings =
  (upstreams: Pick<Upstreams, "relations">) =>
  async (user: string, targets: readonly string[]): Promise<TimedHiding[] | undefined> => {
    try {
      return (await upstreams.relations(user, targets)).map(hidingOf);
    } catch (error) {
      if (isUnimplemented(error)) return undefined;
      throw error;
    }
  };

function hidingOf({ blocking, blocked_by, muting, mute_reposts_only, mute_expires_at }: Relation): TimedHiding {
  if (blocking || blocked_by) return { hiding: "all", until: undefined };
  if (!muting || hasEnded(mute_expires_at)) return { hiding: undefined, until: undefined };
  return { hiding: mute_reposts_only ? "reposts" : "all", until: mute_expires_at || undefined };
}
