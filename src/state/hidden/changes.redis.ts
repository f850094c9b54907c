import { randomUUID } from "node:crypto";
import { chunked, mapLimited } from "../../kernel/concurrency.js";
import { withDeadline } from "../../kernel/deadlines.js";
import { encodeId } from "../../kernel/ids.js";
import { MINUTE, SECOND } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { createRemovalNotes } from "../entries/removal-notes.redis.js";
import { endingKey, hiddenChangesKey, hiddenKey, hiddenStagedKey, homeKey, renewalKey, repostedKey } from "../keys.js";
import { script } from "../scripts.redis.js";
import type { Hiding, TimedHiding } from "./hidden.js";
import { addHider, RENEWAL_MS, timeLeft } from "./hidden.redis.js";

const CHANGE_HIDDEN = script("change-hidden", import.meta.url);

/** A drop of `target` is hidden from `user` now, or may be shown again (`hiding` undefined). */
export interface HidingChange {
  readonly user: string;
  readonly target: string;
  readonly hiding: Hiding | undefined;
  /** When a mute ends, ms since the epoch; undefined: not by itself. */
  readonly until?: number | undefined;
}

/** Change made by the user (`isOwn`) or by the target. */
export type MadeChange = HidingChange & { readonly isOwn: boolean };

export interface ChangeSources {
  /** Resolves to the current state; undefined if the users service does not answer. */
  readHidings(user: string, targets: readonly string[]): Promise<readonly TimedHiding[] | undefined>;
  /** Answers the same by reading all hidden users: a users service may not have the other call. */
  readonly readAllHidings: ChangeSources["readHidings"];
  /** Resolves to true if a home certainly has no drop of the target, no repost of one, and no reply to one. */
  isApart(user: string, target: string): Promise<boolean>;
}

/** Time limit of `isApart`, for which other changes wait. */
export const APART_MS = SECOND / 4;
const AT_ONCE = 16;
const CHANGES_A_CALL = 500;
const CHANGES_TTL_MS = 10 * MINUTE;
const MAX_ROUNDS = 4;

/**
 * Returns a function that applies changes of one user, and returns them with their current state. An event only says
 * that a relation has changed. While the users service does not return the current state, the state in the events is
 * used, and the next read asks again.
 */
export function createChangeHidden(scripts: Scripts, sources: ChangeSources, ttlMs: number) {
  const { run, command } = scripts;
  const notes = createRemovalNotes(scripts);
  const step = (user: string, what: string, mark: string, args: readonly string[]) => {
    return run(CHANGE_HIDDEN, keysOf(user), [what, mark, ttlMs, CHANGES_TTL_MS, RENEWAL_MS, ...args]);
  };
  /** Adds the user to the hiders before anything else changes: fan-out reads the hiders first. */
  const prepare = async (user: string, changes: readonly MadeChange[], isListening: boolean): Promise<void> => {
    const hiding = changes.filter((change) => change.hiding !== undefined).map(({ target }) => target);
    if (hiding.length === 0) return;
    await addHider(scripts, hiding, user, ttlMs);
    const home = homeKey(user);
    if (isListening) await notes.note(home, await command("zrange", (client) => client.zrange(home, "0", "-1")));
  };
  const lose = async (user: string, changes: readonly MadeChange[], isListening: boolean): Promise<void> => {
    await prepare(user, changes, isListening);
    await step(user, "lose", "", argsOf(changes));
  };
  /**
   * Applies changes. Returns those that took effect, with their current state, and those that were lost meanwhile. If a
   * later call took over a change, that call returns it.
   */
  const once = async (changes: readonly MadeChange[], isListening: boolean) => {
    const { user } = changes[0] as MadeChange;
    const targets = changes.map(({ target }) => target);
    const mark = randomUUID();
    const [state, ...before] = (await step(user, "begin", mark, targets.map(encodeId))) as string[];
    const hidings = state === "" && !isListening ? undefined : await sources.readHidings(user, targets);
    const now = hidings ? changes.map((change, index) => ({ ...change, ...hidings[index] })) : changes;
    if (state === "" || !hidings) {
      await lose(user, changes, isListening);
      const known = hidings || !isListening ? undefined : await sources.readAllHidings(user, targets);
      return { now: known ? changes.map((change, index) => ({ ...change, ...known[index] })) : now, lost: [] };
    }
    const changed = now.filter(({ hiding = "" }, index) => state === "filling" || hiding !== before[index]);
    const isFar = new Map(
      await mapLimited(changed, AT_ONCE, async (change) => [change.target, await isFarOff(sources, change)] as const),
    );
    await prepare(user, changed, isListening);
    const far = now.map(({ target }) => isFar.get(target) ?? true);
    const results = (await step(user, "finish", mark, argsOf(now, far))) as number[];
    // A repost or a reply that fan-out wrote during the change is in the home, or in no home that has the change.
    const mayHaveCome = await mapLimited(
      changed.filter(({ target }) => isFar.get(target)),
      AT_ONCE,
      async ({ target }) => command("exists", (client) => client.exists(repostedKey(target))),
    );
    if (mayHaveCome.some((count) => count > 0)) await step(user, "renew", "", []);
    return {
      now: now.filter((_, index) => results[index] === 1),
      lost: changes.filter((_, index) => results[index] === -1),
    };
  };
  const changeSome = async (changes: readonly MadeChange[], isListening: boolean): Promise<HidingChange[]> => {
    const known = new Map<string, HidingChange>();
    let open = changes;
    for (let round = 0; round < MAX_ROUNDS && open.length > 0; round++) {
      const { now, lost } = await once(open, isListening);
      for (const change of now) known.set(change.target, change);
      open = lost;
    }
    if (open.length > 0) await lose((open[0] as MadeChange).user, open, isListening);
    return [...known.values()];
  };
  return async (changes: readonly MadeChange[], isListening: boolean): Promise<HidingChange[]> => {
    const applied: HidingChange[] = [];
    for (const chunk of chunked(newestOf(changes), CHANGES_A_CALL))
      for (const change of await changeSome(chunk, isListening)) applied.push(change);
    return applied;
  };
}

/** Returns the keys of the script. */
const keysOf = (user: string): string[] => [
  ...[homeKey(user), hiddenKey(user), hiddenChangesKey(user), hiddenStagedKey(user)],
  ...[renewalKey(user), endingKey(user)],
];

/** Returns one change for each target. */
function newestOf(changes: readonly MadeChange[]): MadeChange[] {
  const newest = new Map<string, MadeChange>();
  for (const change of changes) {
    const isOwn = change.isOwn || (newest.get(change.target)?.isOwn ?? false);
    newest.set(change.target, { ...change, isOwn });
  }
  return [...newest.values()];
}

const argsOf = (changes: readonly MadeChange[], isFar: readonly boolean[] = []): string[] =>
  changes.flatMap(({ target, hiding, until, isOwn }, index) => {
    const how = isOwn ? "own" : isFar[index] ? "apart" : "other";
    return [encodeId(target), hiding ?? "", how, hiding === undefined ? "" : String(timeLeft(until))];
  });

const isFarOff = async ({ isApart }: ChangeSources, { user, target, isOwn }: MadeChange): Promise<boolean> =>
  !isOwn && withDeadline(isApart(user, target), Date.now() + APART_MS).catch(() => false);
