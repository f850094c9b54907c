import { encodeId, spread } from "../kernel/ids.js";
import { STREAM } from "./subjects.js";

/**
 * `TIMELINE_NOTIFY_PARTS` is one of these. A resume asks the parts that a user has under each of them: with every number
 * up to 64 it would ask three times as many.
 */
export const NOTIFY_PART_COUNTS: readonly number[] = [...Array.from({ length: 16 }, (_, index) => index + 1), 32, 64];

export const MOST_NOTIFY_PARTS = Math.max(...NOTIFY_PART_COUNTS);

/** The stream that stores a user's notifications: NOTIFY itself, or one of several that share the users. */
export interface NotifyPart {
  /** Unset if NOTIFY is one stream. */
  readonly number: number | undefined;
  readonly stream: string;
  /** The token is of a user, or a wildcard. */
  readonly subject: (token: string) => string;
}

const WHOLE: NotifyPart = { number: undefined, stream: STREAM.notify, subject: (token) => `notify.user.${token}` };

const NUMBERED = Array.from(
  { length: MOST_NOTIFY_PARTS },
  (_, number): NotifyPart => ({
    number,
    stream: `${STREAM.notify}-${number}`,
    subject: (token) => `notify.${number}.user.${token}`,
  }),
);

export const notifyParts = (count: number): readonly NotifyPart[] => (count === 1 ? [WHOLE] : NUMBERED.slice(0, count));

/** The parts under every number of parts. */
export const ALL_NOTIFY_PARTS: readonly NotifyPart[] = [WHOLE, ...NUMBERED];

/** Chooses the part as `partition` does in a subject mapping of nats-server. */
const partOfHash = (hash: number, count: number): NotifyPart =>
  count === 1 ? WHOLE : (NUMBERED[hash % count] as NotifyPart);

const partOfToken = (token: string, count: number): NotifyPart => partOfHash(spread(token), count);

export const notifyPartOf = (user: string, count: number): NotifyPart => partOfToken(encodeId(user), count);

/** Returns the parts that the user has under other numbers. */
export function otherPartsOf(user: string, count: number): NotifyPart[] {
  const hash = spread(encodeId(user));
  const all = new Set(NOTIFY_PART_COUNTS.map((each) => partOfHash(hash, each)));
  all.delete(partOfHash(hash, count));
  return [...all];
}

const TO_USER = WHOLE.subject("");

/** Adds the part to a subject that names only the user. Other subjects stay as they are. */
export function toNotifyPart(subject: string, count: number): string {
  if (count === 1 || !subject.startsWith(TO_USER)) return subject;
  const token = subject.slice(TO_USER.length);
  return partOfToken(token, count).subject(token);
}
