import { chunked, mapLimited } from "../../kernel/concurrency.js";
import { throwIfStopping } from "../../kernel/errors.js";
import { failpoint } from "../../kernel/failpoints.js";
import { decodeId } from "../../kernel/ids.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { sendCommands } from "../../platform/redis/send.js";
import {
  deletedKey,
  EDGES_PREFIX,
  edgeField,
  edgesKey,
  followsKeyOfHome,
  homeKey,
  UNFOLLOWERS_PREFIX,
  unfollowersKey,
} from "../keys.js";
import { classify } from "../kinds.js";
import { scanKeys } from "../scan-keys.redis.js";
import { script } from "../scripts.redis.js";
import { LOOKS, type Send, type Subjects } from "./holdings.js";
import { type Finding, lookAt } from "./look.js";

const FORGET_UNFOLLOWERS = script("forget-unfollowers", import.meta.url);
const FORGET_BESIDE_HOME = script("forget-beside-home", import.meta.url);
const REMOVE_OWN = script("remove-own", import.meta.url);

const ITEMS_A_CALL = 1_000;
const REMOVALS_AT_ONCE = 32;
/** Maximum number of timelines in a call. A home that has only drops of one user takes the server 0.6 ms. */
const TIMELINES_A_CALL = 8;
const AUTHORS_A_CALL = 64;
const CALLS_AT_ONCE = 2;

export interface WalkContext {
  readonly stopping: AbortSignal;
  readonly left: (keys: number) => Promise<void>;
  readonly lost: (users: readonly string[]) => Promise<void>;
}

export const createSend =
  ({ command }: Pick<Scripts, "command">): Send =>
  (commands) =>
    commands.length === 0 ? Promise.resolve([]) : command("erasure", (client) => sendCommands(client, commands));

/** Removes fields of a hash beside a home: whom its user follows or hides. */
const forgetBesideHome = ({ run }: Pick<Scripts, "run">, key: string, home: string, fields: readonly string[]) =>
  run(FORGET_BESIDE_HOME, [key, home], fields);

export const forgetFollows = (scripts: Pick<Scripts, "run">, home: string, fields: readonly string[]) =>
  forgetBesideHome(scripts, followsKeyOfHome(home), home, fields);

/** Removes the names of some people, and their drops, from all keys of Redis. May run twice, and beside itself. */
export function createWalk(scripts: Scripts) {
  const send = createSend(scripts);
  const forgetUnfollowers = (edges: string, unfollowers: string, args: readonly string[]) =>
    scripts.run(FORGET_UNFOLLOWERS, [edges, unfollowers], args);
  const removeItems = async ({ kind, key }: Finding, items: readonly string[]): Promise<unknown> => {
    const { remove } = LOOKS[kind.holds as keyof typeof LOOKS];
    if (remove === "unlink") return send([["unlink", key]]);
    if (remove === "forget-beside-home") return forgetBesideHome(scripts, key, homeKey(userOf(key)), items);
    if (remove !== "forget-unfollowers") return send([[remove, key, ...items]]);
    const [part, author] = key.slice(UNFOLLOWERS_PREFIX.length).split(":");
    return forgetUnfollowers(EDGES_PREFIX + part, key, [`${author}:`, ...items]);
  };
  const remove = async (findings: readonly Finding[]): Promise<void> => {
    const whole = findings.filter(({ items }) => items === undefined);
    for (const chunk of chunked(whole, ITEMS_A_CALL)) await send(chunk.map(({ key }) => ["unlink", key]));
    const parts = findings.flatMap((finding) =>
      chunked(finding.items ?? [], ITEMS_A_CALL).map((items) => ({ finding, items })),
    );
    await mapLimited(parts, REMOVALS_AT_ONCE, ({ finding, items }) => removeItems(finding, items));
  };
  /**
   * Removes the people's drops from timelines on a single server, by a script. In a cluster the drops are in another
   * slot, and are found with all other names.
   */
  const removeOwn = async (keys: readonly string[], { authors, tokens }: Subjects): Promise<string[]> => {
    if (scripts.isCluster) return [];
    const timelines = keys.filter((key) => {
      const kind = classify(key);
      return kind?.kind.holds === "drops" && (kind.user === undefined || !tokens.has(kind.user));
    });
    const calls = chunked(authors.map(deletedKey), AUTHORS_A_CALL).flatMap((deleted) =>
      chunked(timelines, TIMELINES_A_CALL).map((chunk) => ({ deleted, chunk })),
    );
    const lost = await mapLimited(calls, CALLS_AT_ONCE, async ({ deleted, chunk }) => {
      const counts = (await scripts.run(REMOVE_OWN, [...deleted, ...chunk], [deleted.length])) as number[];
      return chunk.filter((_, index) => (counts[index] as number) > 0);
    });
    return lost.flat();
  };
  const options = { stays: false, without: scripts.isCluster ? undefined : "drops" } as const;
  return {
    /** Forgets who unfollowed the user. Done first: a set that the scan removed would look lost. */
    forgetUnfollowersOf: async (user: string): Promise<void> => {
      await forgetUnfollowers(edgesKey(user), unfollowersKey(user), [edgeField(user)]);
    },
    async removeAll(subjects: Subjects, { stopping, left: report, lost }: WalkContext): Promise<void> {
      for await (const step of scanKeys(scripts)) {
        throwIfStopping(stopping, "all keys are walked");
        const timelines = await removeOwn(step.keys, subjects);
        const findings = await lookAt(send, step.keys, subjects, options);
        await remove(findings);
        await lost(shownTo([...timelines, ...findings.flatMap(({ key, items }) => (items ? [key] : []))]));
        await failpoint("timelines-walking", ...subjects.users);
        await report(step.left);
      }
    },
  };
}

/** Returns the user whose token the name of a key has. */
const userOf = (key: string): string => decodeId(classify(key)?.user ?? "");

function shownTo(keys: readonly string[]): string[] {
  const users = keys.flatMap((key) => {
    const kind = classify(key);
    return kind?.kind.shows && kind.user !== undefined ? [decodeId(kind.user)] : [];
  });
  return [...new Set(users)];
}
