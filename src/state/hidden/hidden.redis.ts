import { randomUUID } from "node:crypto";
import { createCache } from "../../contracts/caches.js";
import { chunked } from "../../kernel/concurrency.js";
import { withDeadline } from "../../kernel/deadlines.js";
import { AppError } from "../../kernel/errors.js";
import { decodeId, encodeId } from "../../kernel/ids.js";
import { SingleFlight } from "../../kernel/sharing.js";
import { MINUTE, sharedNow } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { MAX_AGE_MS } from "../entries/page-cache.js";
import { type Erased, writeUnlessErased } from "../erased/erasures.js";
import { endingKey, HIDDEN_STATE, hiddenChangesKey, hiddenKey, hiddenStagedKey, hidersKey, homeKey } from "../keys.js";
import { script } from "../scripts.redis.js";
import { Hidden, type HiddenUsers, type Hiding, ManyHidden } from "./hidden.js";

const FILL_HIDDEN = script("fill-hidden", import.meta.url);
const READ_HIDDEN = script("read-hidden", import.meta.url);
const ADD_HIDER = script("add-hider", import.meta.url);

/** Field that says that the hash is complete, or holds the mark of a fill. */
const COMPLETE = "complete";
const MAX_ROUNDS = 8;
/**
 * Minimum time between renewals of a home by changes of others. read-page.lua has it, too. With the questions that a
 * change asks first (`ASK_MS`, `APART_MS`) it stays below the 2 s within which a block hides.
 */
export const RENEWAL_MS = 1_200;
const STAGED_TTL_MS = 10 * MINUTE;
/** Maximum number of targets in a call, which blocks Redis for about 1 ms. */
const TARGETS_A_CALL = 500;
const ASKED_A_CALL = 1_000;
/** Number of hidden users from which a hash is not read whole. */
const MANY = 5_000;

interface HiddenPage {
  readonly hidings: ReadonlyMap<string, Hiding>;
  /** When the first of these mutes ends, ms since the epoch; undefined: none of them does. */
  readonly until?: number | undefined;
}

/** Yields pages, each of other users, or with more about a user. */
export type ReadHidden = (user: string) => AsyncIterable<HiddenPage>;

export type HiddenStore = ReturnType<typeof createHiddenStore>;

type HiderScripts = Pick<Scripts, "run" | "isCluster">;

/**
 * Adds a user to the hiders of targets. The index of hiders lives twice as long as the user's hash, which no read
 * renews: without the hash a home is not complete.
 */
export async function addHider(
  { run, isCluster }: HiderScripts,
  targets: readonly string[],
  user: string,
  ttlMs: number,
): Promise<void> {
  if (isCluster) return;
  for (const chunk of chunked(targets, TARGETS_A_CALL))
    await run(ADD_HIDER, [], [encodeId(user), 2 * ttlMs, ...chunk.map(encodeId)]);
}

/**
 * Stores in Redis whose drops each user does not see. The hash is filled from the users service, page by page, since
 * nothing bounds how many others block a user.
 *
 * The hash expires when the first of its mutes ends: the next reader or writer fills it again, without that mute, and the
 * home is rebuilt.
 *
 * A fill adds the user to the hiders of each target before the hash is complete. So fan-out, which reads an author's
 * hiders first, finds every user whose complete hash has the author.
 */
export function createHiddenStore(
  scripts: Scripts,
  readHidden: ReadHidden,
  erased: Pick<Erased, "among">,
  ttlMs: number,
) {
  const { run, command } = scripts;
  const flight = new SingleFlight<void>();
  const lastKnown = createCache<HiddenUsers>("hiddenUsers", { sizeOf: bytesOf });
  /** Fills the hash once. Adds to `packs` the tokens of the targets that get the user as a hider. */
  const fillOnce = async (user: string, packs: string[]): Promise<boolean> => {
    const keys = [hiddenKey(user), hiddenStagedKey(user), hiddenChangesKey(user), homeKey(user), endingKey(user)];
    const step = (what: string, name: string, endsInMs: number | "" = "", fields: readonly string[] = []) =>
      run(FILL_HIDDEN, keys, [what, name, ttlMs, STAGED_TTL_MS, endsInMs, ...fields]);
    const name = (await step("begin", `~${randomUUID()}`)) as string | null;
    if (name === null) return true;
    for await (const { hidings, until } of readHidden(user)) {
      const gone = await erased.among([...hidings.keys()]);
      const listed = [...hidings].filter(([target]) => !gone.has(target));
      for (const chunk of chunked(listed, TARGETS_A_CALL)) {
        const targets = chunk.map(([target]) => target);
        packs.push(targets.map(encodeId).join(","));
        await addHider(scripts, targets, user, ttlMs);
        const fields = chunk.flatMap(([target, hiding]) => [encodeId(target), hiding]);
        if ((await step("add", name, timeLeft(until), fields)) !== 1) return false;
      }
    }
    return (await step("finish", name)) === 1;
  };
  const wholeHidingsOf = (user: string) => async (targets: readonly string[]) => {
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const { isWhole, hidings } = await askRedis(scripts, user, targets);
      if (isWhole) return hidings;
      // The hash was lost after its state was read: its answers would say that nobody is hidden.
      await fill(user);
    }
    throw changing();
  };
  const read = async (user: string): Promise<HiddenUsers | undefined> => {
    const answer = await run(READ_HIDDEN, [hiddenKey(user)], [MANY]);
    const [state, size, expiresInMs, fields] = answer as [string, number, number, readonly string[]];
    const endsSoon = expiresInMs >= 0 && expiresInMs < MAX_AGE_MS;
    const until = expiresInMs >= 0 ? sharedNow() + expiresInMs : undefined;
    const few = size < MANY ? new Hidden(user, targetsOf(fields), endsSoon, until) : undefined;
    const last = few ?? new ManyHidden(user, size, async (targets) => (await askRedis(scripts, user, targets)).hidings);
    if (state === COMPLETE || size > 0) lastKnown.set(user, last);
    return state === COMPLETE
      ? (few ?? new ManyHidden(user, size, wholeHidingsOf(user), { endsSoon, until }))
      : undefined;
  };
  const forget = async (user: string, packs: readonly string[]): Promise<void> => {
    const removeHider = (token: string) =>
      command("srem", (client) => client.srem(hidersKey(decodeId(token)), encodeId(user)));
    if (!scripts.isCluster) for (const pack of packs) await Promise.all(pack.split(",").map(removeHider));
    const keys = [hiddenKey(user), hiddenStagedKey(user), hiddenChangesKey(user), endingKey(user)] as const;
    await command("unlink", (client) => client.unlink(...keys));
  };
  /**
   * Fills the hash. Callers share the work, which continues if one of them gives up at its deadline, in ms since the
   * epoch.
   */
  const fill = (user: string, deadline?: number): Promise<void> => {
    const filled = flight.run(user, () => {
      const packs: string[] = [];
      const write = async (): Promise<void> => {
        for (let round = 0; round < MAX_ROUNDS; round++) if (await fillOnce(user, packs)) return;
        throw changing();
      };
      return writeUnlessErased(erased, user, { write, remove: () => forget(user, packs) });
    });
    return deadline === undefined ? filled : withDeadline(filled, deadline);
  };
  return {
    held: read,
    fill,
    /** Reads the hidden users, from the users service if Redis does not have them. */
    async known(user: string, deadline?: number): Promise<HiddenUsers> {
      for (let round = 0; round < MAX_ROUNDS; round++) {
        const hidden = await read(user);
        if (hidden) return hidden;
        await fill(user, deadline);
      }
      throw changing();
    },
    /** Returns the hidden users that this process knew last, for the time in which {@link known} rejects. */
    lastKnown: (user: string): HiddenUsers => lastKnown.get(user) ?? new Hidden(user, new Map()),
  };
}

/** Returns the time until a mute ends, in ms, as the scripts take it; "" for none that ends. */
export const timeLeft = (until: number | undefined): number | "" =>
  until === undefined ? "" : Math.max(1, Math.ceil(until - sharedNow()));

const changing = () => new AppError("unavailable", "the hidden users of a user change faster than they can be read");

/** Reads from Redis how the user hides these targets, and if the hash is still complete. */
async function askRedis({ command }: Pick<Scripts, "command">, user: string, targets: readonly string[]) {
  let isWhole = true;
  const hidings: (Hiding | undefined)[] = [];
  for (const chunk of chunked(targets, ASKED_A_CALL)) {
    const fields = [HIDDEN_STATE, ...chunk.map(encodeId)];
    const [state, ...answers] = await command("hmget", (client) => client.hmget(hiddenKey(user), ...fields));
    isWhole &&= state === COMPLETE;
    for (const answer of answers) hidings.push((answer ?? undefined) as Hiding | undefined);
  }
  return { isWhole, hidings };
}

const targetsOf = (fields: readonly string[]): Map<string, Hiding> => {
  const targets = new Map<string, Hiding>();
  for (let index = 0; index < fields.length; index += 2) {
    const [token, hiding] = [fields[index] as string, fields[index + 1] as Hiding];
    if (!token.startsWith("~")) targets.set(decodeId(token), hiding);
  }
  return targets;
};

const USER_BYTES = 500;

const bytesOf = (hidden: HiddenUsers): number => USER_BYTES + (hidden instanceof Hidden ? hidden.bytes : 0);
