/** A place in NOTIFY. Sequences only compare within one incarnation of the stream: one that is made anew counts from 1. */
export interface Position {
  readonly seq: number;
  /** Names the incarnation; a word of `[0-9a-z]`. */
  readonly incarnation: string;
}

/** How a position is told to clients (`id:`) and kept: `17-mi9c3k2v`. */
export const idOf = ({ seq, incarnation }: Position): string => `${seq}-${incarnation}`;

/** Reads what {@link idOf} wrote; undefined for everything else. */
export function readId(text: string): Position | undefined {
  const [, digits, incarnation] = /^(\d{1,16})-([0-9a-z]{1,16})$/.exec(text) ?? [];
  const seq = Number(digits);
  return incarnation !== undefined && Number.isSafeInteger(seq) ? { seq, incarnation } : undefined;
}

/** Names the incarnation of a stream that was created at that time, in ms since the epoch. */
export const incarnationOf = (createdAt: number): string => createdAt.toString(36);
