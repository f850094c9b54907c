import type { Letter } from "./dead-letter.js";

/** Letters that say the same. */
export interface Group {
  /** The error of the oldest of them. */
  readonly error: string;
  readonly reason: string;
  readonly event: string;
  count: number;
  /** When the first and the last of them failed, in ms since the epoch. */
  firstAt: number;
  lastAt: number;
  /** The oldest few. */
  readonly seqs: number[];
  /** How many letters are about whom. */
  readonly authors: Map<string, number>;
}

const SEQS_SHOWN = 5;

/** Puts letters (with bodies) together by reason, event and error; groups come out biggest first. */
export async function grouped(letters: AsyncIterable<Letter>): Promise<Group[]> {
  const groups = new Map<string, Group>();
  for await (const letter of letters) {
    const { reason, event, error } = letter.listed;
    const key = JSON.stringify([reason, event, shapeOf(error)]);
    const group = groups.get(key) ?? newGroup(letter);
    groups.set(key, group);
    add(group, letter);
  }
  return [...groups.values()].sort((a, b) => b.count - a.count || a.firstAt - b.firstAt);
}

function newGroup({ listed, failedAt }: Letter): Group {
  const { error, reason, event } = listed;
  return { error, reason, event, count: 0, firstAt: failedAt, lastAt: failedAt, seqs: [], authors: new Map() };
}

function add(group: Group, letter: Letter): void {
  group.count++;
  group.firstAt = Math.min(group.firstAt, letter.failedAt);
  group.lastAt = Math.max(group.lastAt, letter.failedAt);
  if (group.seqs.length < SEQS_SHOWN) group.seqs.push(letter.listed.seq);
  const author = authorOf(letter.body);
  if (author !== undefined) group.authors.set(author, (group.authors.get(author) ?? 0) + 1);
}

/** Errors that differ only in what they quote or count are the same error. */
function shapeOf(error: string): string {
  return error.replaceAll(/"[^"]*"|'[^']*'/g, '""').replaceAll(/\d+/g, "0");
}

/** Whom an event is about, as far as its body says. */
function authorOf(body: Uint8Array): string | undefined {
  try {
    const { user_id, following_id } = JSON.parse(Buffer.from(body).toString()) as Record<string, unknown>;
    return [user_id, following_id].find((id): id is string => typeof id === "string");
  } catch {
    return undefined;
  }
}
