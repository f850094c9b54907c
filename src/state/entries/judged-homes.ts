import type { TimelineEntry } from "../../contracts/timelines.js";
import type { Standings } from "../standing/standings.redis.js";
import { isOfSuspended } from "../standing/unlisted.js";
import type { Veiled } from "../standing/veiled.redis.js";
import { encodeWhole } from "./page-response.js";
import type { Range, Stored } from "./stored.js";

interface JudgeDeps {
  readonly standings: Pick<Standings, "of" | "size" | "changes">;
  readonly veiled: Pick<Veiled, "among">;
  readonly repostWindow: number;
}

interface Judgement {
  /** Number of changes of standings before it. */
  readonly changes: number;
  readonly hidden: ReadonlySet<string>;
  readonly shown: Stored;
}

/**
 * Returns a function that hides from an answer of a home what suspensions hide, and encodes the page that the range asks
 * for, if the answer has all of it. Homes store ids without authors, and answers are cached whoever is suspended: while
 * standings change, a cached answer costs a look at its drops once after each change.
 */
export function createJudgeHome({ standings, veiled, repostWindow }: JudgeDeps) {
  const judgements = new WeakMap<Stored, Judgement>();
  return async (stored: Stored, range: Range): Promise<Stored> => {
    const before = judgements.get(stored);
    const { changes } = standings;
    if (before?.changes === changes) return before.shown;
    const among = await veiled.among(stored.entries.map(({ drop }) => drop));
    const isHidden = ({ drop, by }: TimelineEntry) =>
      stored.hidden?.has(drop) || among.has(drop) || (by && isOfSuspended(standings, by));
    const hidden = new Set(stored.entries.filter(isHidden).map(({ drop }) => drop));
    const isSame = before?.hidden.size === hidden.size && [...hidden].every((drop) => before.hidden.has(drop));
    const shown = isSame ? before.shown : shownOf(stored, hidden, { ...range, repostWindow });
    judgements.set(stored, { changes, hidden, shown });
    return shown;
  };
}

function shownOf(
  stored: Stored,
  hidden: ReadonlySet<string>,
  { repostWindow, ...range }: Range & Pick<JudgeDeps, "repostWindow">,
): Stored {
  const entries = stored.entries.filter(({ drop }) => !hidden.has(drop));
  const whole = { ...range, count: range.count - hidden.size };
  const encoded = encodeWhole({ ...stored, entries, hidden: undefined }, whole, repostWindow);
  return encoded ?? (hidden.size === 0 ? stored : { ...stored, hidden });
}
