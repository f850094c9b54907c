import { compareBytes, FLOOR_MEMBER, idFault } from "../kernel/ids.js";

/** A place in a timeline: the order is (score, bytes of the drop id). */
export interface Position {
  /** Created at, in ms since the epoch. */
  readonly score: number;
  readonly drop: string;
}

/** Negative where `a` is older than `b`. */
export function compare(a: Position, b: Position): number {
  return a.score - b.score || compareBytes(a.drop, b.drop);
}

/** Before every drop of this ms: no drop id is empty. */
export const startOf = (score: number): Position => ({ score, drop: "" });

const TOKEN = /^~(\d+)\.([A-Za-z0-9_-]*)$/;

/** A page token: says a position in full, so that it holds when the drop it names is gone. */
export function toToken({ score, drop }: Position): string {
  return `~${score}.${Buffer.from(drop, "utf8").toString("base64url")}`;
}

/** The position a token says, or undefined where the text is none. */
export function fromToken(text: string): Position | undefined {
  const match = TOKEN.exec(text);
  if (!match) return undefined;
  const score = Number(match[1]);
  if (!Number.isSafeInteger(score)) return undefined;
  const position = { score, drop: Buffer.from(match[2] as string, "base64url").toString("utf8") };
  const { drop } = position;
  if (drop === FLOOR_MEMBER || (drop !== "" && idFault(drop) !== undefined)) return undefined;
  return toToken(position) === text ? position : undefined;
}
