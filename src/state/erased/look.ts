import { chunked, grouped, mapLimited } from "../../kernel/concurrency.js";
import { decodeId } from "../../kernel/ids.js";
import type { Holding } from "../declared.js";
import { type Classified, classify, type KeyKind } from "../kinds.js";
import { LOOKS, type Look, type Send, type Subjects } from "./holdings.js";

export interface Found {
  readonly kind: KeyKind;
  readonly key: string;
  /** The members or fields; undefined where the key itself is of one of the people. */
  readonly items: readonly string[] | undefined;
}

interface Key extends Classified {
  readonly key: string;
}

interface LookOptions {
  /** It is found, and may stay. */
  readonly stays: boolean;
  /** This is not looked for in keys of others, or of nobody. */
  readonly without?: Holding | undefined;
}

/** So many calls are under way; others' commands come between them. */
const CALLS_AT_ONCE = 4;

/** Finds what in some keys names one of the people, or holds their drops. Keys of unknown kinds are left out. */
export async function lookAt(
  send: Send,
  names: readonly string[],
  subjects: Subjects,
  { stays, without }: LookOptions,
): Promise<Found[]> {
  const keys = names.flatMap((key): Key[] => {
    const classified = classify(key);
    return classified && (stays || classified.kind.stays === undefined) ? [{ key, ...classified }] : [];
  });
  const own = await ownAmong(keys, subjects);
  const others = keys.filter((one) => !own.has(one) && one.kind.holds !== undefined && one.kind.holds !== without);
  const calls = [...grouped(others, ({ kind }) => kind.keys).values()].flatMap((some) => {
    const look = LOOKS[(some[0] as Key).kind.holds as keyof typeof LOOKS];
    return chunked(some, look.atOnce).map((part) => ({ look, part }));
  });
  const found = await mapLimited(calls, CALLS_AT_ONCE, ({ look, part }) => findIn(send, look, part, subjects));
  return [...[...own].map(({ key, kind }) => ({ key, kind, items: undefined })), ...found.flat()];
}

async function findIn(send: Send, look: Look, keys: readonly Key[], subjects: Subjects): Promise<Found[]> {
  const names = keys.map(({ key }) => key);
  const items = await look.find(send, names, subjects);
  return keys.flatMap(({ key, kind }, at) => {
    const some = items[at] ?? [];
    return some.length === 0 ? [] : { key, kind, items: some };
  });
}

async function ownAmong(keys: readonly Key[], { tokens, ownAmong: own }: Subjects): Promise<ReadonlySet<Key>> {
  const drops = keys.flatMap(({ drop }) => (drop === undefined ? [] : decodeId(drop)));
  const ownDrops = drops.length === 0 ? new Set<string>() : await own(drops);
  return new Set(
    keys.filter(
      ({ user, drop }) =>
        (user !== undefined && tokens.has(user)) || (drop !== undefined && ownDrops.has(decodeId(drop))),
    ),
  );
}
