import type { TimelineEntry } from "../contracts/timelines.js";
import { CLOCK_SKEW_MS } from "../contracts/times.js";
import { MINUTE, sharedNow } from "../kernel/time.js";

/**
 * Lists the own drops that changed in [since, until), in ms since the epoch; `until` 0 is open-ended. The values are the
 * entries of those that belong in local. Ends early, not whole, above `most` drops. Resolves to undefined where the
 * upstream has no ListDrops.
 */
export type ListDrops = (
  range: { readonly since: number; readonly until: number },
  most?: number,
) => Promise<{ readonly drops: ReadonlyMap<string, TimelineEntry | undefined>; readonly isWhole: boolean } | undefined>;

export interface Walked {
  readonly drops: ReadonlyMap<string, TimelineEntry | undefined>;
  /** Every change since then is listed, in ms since the epoch; 0: every change. */
  readonly since: number;
}

interface WalkOptions {
  /** Ends the walk. It gets what is listed so far. */
  readonly isEnough: (walked: Walked) => Promise<boolean>;
  /** No page shows drops that were created before then, in ms since the epoch. */
  readonly oldest: number;
}

/** A drop is dated some minutes ahead of its change at most: a shorter window would tell of no time. */
const FIRST_WINDOW_MS = 15 * MINUTE;
const WIDEN = 4;
/** A longer window with more drops is read again as a shorter one. */
const MOST_IN_LONG_WINDOW = 10_000;
/** The walk ends at so many drops, about 40 MB. */
const MOST_LISTED = 200_000;

/**
 * Lists the newest changes, a window of time after the other, each older and longer than the one before. Resolves to
 * undefined where the upstream cannot list them, or has too many in the newest window.
 */
export async function walkListed(list: ListDrops, { isEnough, oldest }: WalkOptions): Promise<Walked | undefined> {
  const begun = sharedNow();
  const drops = new Map<string, TimelineEntry | undefined>();
  let since = begun;
  /** Windows that reach down to this time have too many drops, unless they are short. */
  let crowded = Number.POSITIVE_INFINITY;
  for (let width = FIRST_WINDOW_MS; since > 0; ) {
    const isLong = width > FIRST_WINDOW_MS;
    const from = since - width <= oldest ? 0 : since - width;
    const most = Math.min(isLong ? MOST_IN_LONG_WINDOW : MOST_LISTED, MOST_LISTED - drops.size);
    const window = await list({ since: from, until: since === begun ? 0 : since }, most);
    if (window === undefined) return undefined;
    if (!window.isWhole) {
      if (!isLong || drops.size + MOST_IN_LONG_WINDOW > MOST_LISTED) break;
      width = Math.max(FIRST_WINDOW_MS, width / WIDEN);
      crowded = from;
      continue;
    }
    // A drop that changed during the walk was listed by a newer window, as it is now.
    for (const [drop, entry] of window.drops) if (!drops.has(drop)) drops.set(drop, entry);
    since = from;
    if (since <= crowded && window.drops.size * WIDEN < MOST_IN_LONG_WINDOW) width *= WIDEN;
    if (await isEnough({ drops, since })) break;
  }
  if (since === begun) return undefined;
  // One that changed since its window is in none, if its window came later.
  const late = await list({ since: begun - CLOCK_SKEW_MS, until: 0 }, MOST_LISTED);
  for (const [drop, entry] of late?.drops ?? []) drops.set(drop, entry);
  return { drops, since };
}
