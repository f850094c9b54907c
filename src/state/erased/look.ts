import { chunked, grouped, mapLimited } from "../../kernel/concurrency.js";
import { decodeId } from "../../kernel/ids.js";
import type { Holding } from "../declared.js";
import { type Classified, classify, type KeyKind } from "../kinds.js";
import { LOOKS, type Look, type Send, type Subjects } from "./holdings.js";

export interface Finding {
  readonly kind: KeyKind;
  readonly key: string;
  /** Members or fields; undefined if the key itself belongs to one of the people. */
  readonly items: readonly string[] | undefined;
}

interface Key extends Classified {
  readonly key: string;
}

interface LookOptions {
  /** True: also finds keys whose names may stay. */
  readonly stays: boolean;
  /** Kind of content that is not searched in keys of others, or of nobody. */
  readonly without?: Holding | undefined;
}

/** Maximum number of calls at a time; commands of others come between them. */
const CALLS_AT_ONCE = 4;

/** Finds in keys the names of some people, and their drops. Keys of unknown kinds are left out. */
export async function lookAt(
  send: Send,
  names: readonly string[],
  subjects: Subjects,
  { stays, without }: LookOptions,
): Promise<Finding[]> {
  const keys = names.flatMap((key): Key[] => {
    const classified = classify(key);
    return classified && (stays || classified.kind.stays === undefined) ? [{ key, ...classified }] : [];
  });
  const keysOfPeople = await ownAmong(keys, subjects);
  const others = keys.filter(
    (key) => !keysOfPeople.has(key) && key.kind.holds !== undefined && key.kind.holds !== without,
  );
  const calls = [...grouped(others, ({ kind }) => kind.keys).values()].flatMap((sameKind) => {
    const look = LOOKS[(sameKind[0] as Key).kind.holds as keyof typeof LOOKS];
    return chunked(sameKind, look.atOnce).map((part) => ({ look, part }));
  });
  const findings = await mapLimited(calls, CALLS_AT_ONCE, ({ look, part }) => findIn(send, look, part, subjects));
  return [...[...keysOfPeople].map(({ key, kind }) => ({ key, kind, items: undefined })), ...findings.flat()];
}

async function findIn(send: Send, look: Look, keys: readonly Key[], subjects: Subjects): Promise<Finding[]> {
  const names = keys.map(({ key }) => key);
  const items = await look.find(send, names, subjects);
  return keys.flatMap(({ key, kind }, index) => {
    const matches = items[index] ?? [];
    return matches.length === 0 ? [] : { key, kind, items: matches };
  });
}

async function ownAmong(keys: readonly Key[], { tokens, ownAmong: areOwn }: Subjects): Promise<ReadonlySet<Key>> {
  const drops = keys.flatMap(({ drop }) => (drop === undefined ? [] : decodeId(drop)));
  const ownDrops = drops.length === 0 ? new Set<string>() : await areOwn(drops);
  return new Set(
    keys.filter(
      ({ user, drop }) =>
        (user !== undefined && tokens.has(user)) || (drop !== undefined && ownDrops.has(decodeId(drop))),
    ),
  );
}
