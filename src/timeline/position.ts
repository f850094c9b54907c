import type { TimelineEntry } from "../contracts/timelines.js";
import { FLOOR_MEMBER, idFault } from "../kernel/ids.js";

/** Before every drop of this ms: no drop id is empty. */
export const startOf = (score: number): TimelineEntry => ({ score, drop: "" });

const TOKEN = /^~(\d+)\.([A-Za-z0-9_-]*)$/;

/** A page token: says a position in full, so that it holds when the drop it names is gone. */
export function toToken({ score, drop }: TimelineEntry): string {
  return `~${score}.${Buffer.from(drop, "utf8").toString("base64url")}`;
}

/** The position a token says, or undefined where the text is none. */
export function fromToken(text: string): TimelineEntry | undefined {
  const match = TOKEN.exec(text);
  if (!match) return undefined;
  const score = Number(match[1]);
  if (!Number.isSafeInteger(score)) return undefined;
  const position = { score, drop: Buffer.from(match[2] as string, "base64url").toString("utf8") };
  const { drop } = position;
  if (drop === FLOOR_MEMBER || (drop !== "" && idFault(drop) !== undefined)) return undefined;
  return toToken(position) === text ? position : undefined;
}
