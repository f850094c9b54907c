import type { TimelineEntry } from "../contracts/timelines.js";
import { CLOCK_SKEW_MS } from "../contracts/times.js";
import { MINUTE, sharedNow } from "../kernel/time.js";

/**
 * Lists this server's own drops that changed in [since, until), in ms since the epoch; `until` 0 is open-ended. The
 * values are the entries of those that belong in local. Stops above `most` drops, with `isWhole` false. Resolves to
 * undefined if the upstream has no ListDrops.
 */
export type ListDrops = (
  range: { readonly since: number; readonly until: number },
  most?: number,
) => Promise<{ readonly drops: ReadonlyMap<string, TimelineEntry | undefined>; readonly isWhole: boolean } | undefined>;

export interface Walked {
  readonly drops: ReadonlyMap<string, TimelineEntry | undefined>;
  /** Every change after this time is listed, in ms since the epoch; 0: every change. */
  readonly since: number;
}

interface WalkOptions {
  /** Ends the walk if it resolves to true. Receives the drops listed so far. */
  readonly isEnough: (walked: Walked) => Promise<boolean>;
  /** No page shows drops created before this time, in ms since the epoch. */
  readonly oldest: number;
}

/**
 * Width of the first window. A drop is dated at most some minutes ahead of its change, so a shorter window could not
 * tell down to which time the drops are complete.
 */
const FIRST_WINDOW_MS = 15 * MINUTE;
const WIDEN = 4;
/** Maximum number of drops in a long window. A window with more is read again as a shorter one. */
const MOST_IN_LONG_WINDOW = 10_000;
/** Maximum number of drops of a walk, about 40 MB. */
const MOST_LISTED = 200_000;

/**
 * Lists the newest changes in windows of time, each older and longer than the one before. Resolves to undefined if the
 * upstream cannot list them, or has too many in the newest window.
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
    // A drop that changed during the walk was listed by a newer window with its newer state.
    for (const [drop, entry] of window.drops) if (!drops.has(drop)) drops.set(drop, entry);
    since = from;
    if (since <= crowded && window.drops.size * WIDEN < MOST_IN_LONG_WINDOW) width *= WIDEN;
    if (await isEnough({ drops, since })) break;
  }
  if (since === begun) return undefined;
  // A drop that changed during the walk may be in no window: it left the older one before that was read.
  const late = await list({ since: begun - CLOCK_SKEW_MS, until: 0 }, MOST_LISTED);
  for (const [drop, entry] of late?.drops ?? []) drops.set(drop, entry);
  return { drops, since };
}
