import { encodeId } from "../kernel/ids.js";

/** Ids of a user as they are stored. */
export interface Person {
  readonly user: string;
  readonly token: string;
}

export const personOf = (user: string): Person => ({ user, token: encodeId(user) });

/** People who are forgotten together: one scan finds all that names any of them. */
export interface People {
  readonly all: readonly Person[];
  readonly users: ReadonlySet<string>;
  readonly tokens: ReadonlySet<string>;
}

export const peopleOf = (all: readonly Person[]): People => ({
  all,
  users: new Set(all.map(({ user }) => user)),
  tokens: new Set(all.map(({ token }) => token)),
});

/** Fields that name people. Others do not count: a text, a kind or a number may equal an id. */
export const NAMES_PEOPLE =
  /^(.*_)?(user|follower|following|target|actor|author|recipient|owner|did|by|mention)(_id)?s?$/;

/** Returns true if a parsed JSON value names the user, at any depth. A byline joins tokens by ",". */
export function namesPerson(value: unknown, person: Person): boolean {
  const open: { readonly value: unknown; readonly counts: boolean }[] = [{ value, counts: false }];
  for (let next = open.pop(); next; next = open.pop()) {
    const { value: current, counts } = next;
    if (typeof current === "string") {
      if (counts && (current === person.user || current.split(",").includes(person.token))) return true;
    } else if (Array.isArray(current)) for (const item of current) open.push({ value: item, counts });
    else if (typeof current === "object" && current !== null)
      for (const [name, field] of Object.entries(current)) open.push({ value: field, counts: NAMES_PEOPLE.test(name) });
  }
  return false;
}

/** Returns undefined for a text that is not JSON. */
export function parsedJson(text: string | Uint8Array): unknown {
  try {
    return JSON.parse(typeof text === "string" ? text : Buffer.from(text).toString());
  } catch {
    return undefined;
  }
}

/** Subjects that end with the token of a user, or have more parts behind it. */
const SUBJECT_OF_PERSON =
  /^(?:notify(?:\.\d+)?\.user|live\.user|edges\.[a-z]+|\$KV\.ERASED\.(?:user|report|lifted)|\$KV\.ANALYSES\.[a-z]|\$KV\.POSITIONS)\.([^.]+)/;

export const subjectNames = (subject: string, { token }: Person): boolean =>
  SUBJECT_OF_PERSON.exec(subject)?.[1] === token;

/** Ids of messages that name one user, or two. */
const MESSAGE_ID_OF_PEOPLE = /^(?:user_[a-z]+|standing_changed|edges|erased):([^:]+)(?::([^:]+):)?/;

export function messageIdNames(id: string, { token }: Person): boolean {
  const [, first, second] = MESSAGE_ID_OF_PEOPLE.exec(id) ?? [];
  return first === token || second === token;
}

/** Place that names a person. */
export interface Place {
  readonly server: "PostgreSQL" | "Redis" | "NATS";
  /** A column of a table, a kind of keys, or a stream. */
  readonly place: string;
  /** Name of one of several keys. */
  readonly example?: string | undefined;
  readonly count: number;
  readonly mayStay: boolean;
  readonly why: string;
}
