import { randomUUID } from "node:crypto";
import { chunked, mapLimited } from "../../kernel/concurrency.js";
import { withDeadline } from "../../kernel/deadlines.js";
import { encodeId } from "../../kernel/ids.js";
import { MINUTE, SECOND } from "../../kernel/time.js";
import { type Scripts, script } from "../../platform/redis/scripts.js";
import { createRemovalNotes } from "../entries/removal-notes.redis.js";
import { hiddenChangesKey, hiddenKey, hiddenStagedKey, homeKey, renewalKey, repostedKey } from "../keys.js";
import type { Hiding } from "./hidden.js";
import { addHider, RENEWAL_MS } from "./hidden.redis.js";

const CHANGE_HIDDEN = script("change-hidden", import.meta.url);

/** A drop of `target` is hidden from `user` by now, or may be shown again (`hiding` unset). */
export interface HidingChange {
  readonly user: string;
  readonly target: string;
  readonly hiding: Hiding | undefined;
}

/** The user, or the target, has made the change. */
export type MadeChange = HidingChange & { readonly isOwn: boolean };

export interface ChangeSources {
  /** Resolves to how it is now; undefined where the users service does not tell. */
  readHidings(user: string, targets: readonly string[]): Promise<readonly (Hiding | undefined)[] | undefined>;
  /** Reads all hidden users for it: a users service may tell of no others. */
  readonly readAllHidings: ChangeSources["readHidings"];
  /** Resolves to true where a home certainly has no drop of the target, and no repost of one. */
  isApart(user: string, target: string): Promise<boolean>;
}

/** Other changes wait for it. */
export const APART_MS = SECOND / 4;
const AT_ONCE = 16;
const CHANGES_A_CALL = 500;
const CHANGES_TTL_MS = 10 * MINUTE;
const MAX_ROUNDS = 4;

/**
 * Makes the function that applies changes of one user, and returns them as they are now. An event only says that
 * something has changed; while the users service does not tell how it is, the events count, and the next read asks.
 */
export function createChangeHidden(scripts: Scripts, sources: ChangeSources, ttlMs: number) {
  const { run, command } = scripts;
  const notes = createRemovalNotes(scripts);
  const step = (user: string, what: string, mark: string, args: readonly string[]) => {
    const keys = [homeKey(user), hiddenKey(user), hiddenChangesKey(user), hiddenStagedKey(user), renewalKey(user)];
    return run(CHANGE_HIDDEN, keys, [what, mark, ttlMs, CHANGES_TTL_MS, RENEWAL_MS, ...args]);
  };
  /** Fan-out looks for hiders first: they are added before anything else changes. */
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
  /** Returns what has changed, as it is now, and changes that were lost meanwhile. A later one tells of what it took over. */
  const once = async (changes: readonly MadeChange[], isListening: boolean) => {
    const { user } = changes[0] as MadeChange;
    const targets = changes.map(({ target }) => target);
    const mark = randomUUID();
    const [state, ...held] = (await step(user, "begin", mark, targets.map(encodeId))) as string[];
    const hidings = state === "" && !isListening ? undefined : await sources.readHidings(user, targets);
    const now = hidings ? changes.map((change, at) => ({ ...change, hiding: hidings[at] })) : changes;
    if (state === "" || !hidings) {
      await lose(user, changes, isListening);
      const known = hidings || !isListening ? undefined : await sources.readAllHidings(user, targets);
      return { now: known ? changes.map((change, at) => ({ ...change, hiding: known[at] })) : now, lost: [] };
    }
    const changed = now.filter(({ hiding = "" }, at) => state === "filling" || hiding !== held[at]);
    const isFar = new Map(
      await mapLimited(changed, AT_ONCE, async (one) => [one.target, await isFarOff(sources, one)] as const),
    );
    await prepare(user, changed, isListening);
    const far = now.map(({ target }) => isFar.get(target) ?? true);
    const results = (await step(user, "finish", mark, argsOf(now, far))) as number[];
    // A repost that fan-out wrote beside the change is in the home, or in no home that has the change.
    const mayHaveCome = await mapLimited(
      changed.filter(({ target }) => isFar.get(target)),
      AT_ONCE,
      async ({ target }) => command("exists", (client) => client.exists(repostedKey(target))),
    );
    if (mayHaveCome.some((count) => count > 0)) await step(user, "renew", "", []);
    return {
      now: now.filter((_, at) => results[at] === 1),
      lost: changes.filter((_, at) => results[at] === -1),
    };
  };
  const changeSome = async (changes: readonly MadeChange[], isListening: boolean): Promise<HidingChange[]> => {
    const known = new Map<string, HidingChange>();
    let left = changes;
    for (let round = 0; round < MAX_ROUNDS && left.length > 0; round++) {
      const { now, lost } = await once(left, isListening);
      for (const one of now) known.set(one.target, one);
      left = lost;
    }
    if (left.length > 0) await lose((left[0] as MadeChange).user, left, isListening);
    return [...known.values()];
  };
  return async (changes: readonly MadeChange[], isListening: boolean): Promise<HidingChange[]> => {
    const applied: HidingChange[] = [];
    for (const some of chunked(newestOf(changes), CHANGES_A_CALL))
      for (const one of await changeSome(some, isListening)) applied.push(one);
    return applied;
  };
}

/** One change for each target. */
function newestOf(changes: readonly MadeChange[]): MadeChange[] {
  const newest = new Map<string, MadeChange>();
  for (const change of changes) {
    const isOwn = change.isOwn || (newest.get(change.target)?.isOwn ?? false);
    newest.set(change.target, { ...change, isOwn });
  }
  return [...newest.values()];
}

const argsOf = (changes: readonly MadeChange[], isFar: readonly boolean[] = []): string[] =>
  changes.flatMap(({ target, hiding, isOwn }, at) => {
    const how = isOwn ? "own" : isFar[at] ? "apart" : "other";
    return [encodeId(target), hiding ?? "", how];
  });

const isFarOff = async ({ isApart }: ChangeSources, { user, target, isOwn }: MadeChange): Promise<boolean> =>
  !isOwn && withDeadline(isApart(user, target), Date.now() + APART_MS).catch(() => false);
