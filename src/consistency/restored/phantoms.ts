import type { TimelineEvent } from "../../contracts/events.js";
import { CLOCK_SKEW_MS, LOG_AGE_MS } from "../../contracts/times.js";
import { grouped, mapLimited } from "../../kernel/concurrency.js";
import { codeOf, subjectOf } from "../../kernel/errors.js";
import { HOUR } from "../../kernel/time.js";
import { ADMISSION_LAG_MS, type TimeRange } from "../reconcile/reconcile.js";
import type { HeldDrop, KnowsDrop, ListDropIds } from "./judge.js";

/** Reads events that the log admitted in a range, with their sequences. */
export type ReadLogged = (
  range: TimeRange,
) => AsyncIterable<{ readonly event: TimelineEvent; readonly seq: number; readonly time: number }>;

interface PhantomDeps {
  readonly readCreated: ReadLogged;
  readonly tombstonedAmong: (drops: readonly string[]) => Promise<ReadonlySet<string>>;
  readonly retentionStart: () => number;
  readonly listDropIds: ListDropIds;
  readonly knowsDrop: KnowsDrop;
}

export interface Phantoms {
  readonly phantoms: readonly HeldDrop[];
  readonly known: number;
  /** The number of drops whose authors could not be asked about. */
  readonly failed: number;
  /** These were deleted since the backup: the upstreams have them again, and timelines go on hiding them. */
  readonly revived: readonly HeldDrop[];
}

const SLICE_MS = 6 * HOUR;
const AUTHORS_AT_ONCE = 8;

/** Looks up every drop of the log admitted before `until` (ms since the epoch), a slice of its time after the other. */
export async function* findPhantoms(deps: PhantomDeps, until: number): AsyncGenerator<Phantoms> {
  for (let since = until - LOG_AGE_MS - HOUR; since < until; since += SLICE_MS)
    yield await phantomsIn(deps, { since, until: Math.min(since + SLICE_MS, until) });
}

async function phantomsIn(deps: PhantomDeps, slice: TimeRange): Promise<Phantoms> {
  const held = new Map<string, HeldDrop>();
  for await (const { event } of deps.readCreated(slice)) {
    if (event.name !== "drop_created") continue;
    const { drop_id: drop, user_id: author, created_at: createdAt } = event.payload;
    if (createdAt >= deps.retentionStart()) held.set(drop, { drop, author, createdAt });
  }
  if (held.size === 0) return { phantoms: [], known: 0, failed: 0, revived: [] };
  const listed = await deps.listDropIds({
    since: slice.since - ADMISSION_LAG_MS - CLOCK_SKEW_MS,
    until: slice.until + CLOCK_SKEW_MS,
  });
  const tombstoned = await deps.tombstonedAmong([...held.keys()]);
  const revived = [...held.values()].filter(({ drop }) => tombstoned.has(drop) && listed?.get(drop) === true);
  const asked = [...held.values()].filter(({ drop }) => !listed?.has(drop) && !tombstoned.has(drop));
  const byAuthor = [...grouped(asked, ({ author = "" }) => author).values()];
  const judged = (await mapLimited(byAuthor, AUTHORS_AT_ONCE, (drops) => judge(deps, drops))).flat();
  const phantoms = judged.flatMap(({ one, known }) => (known === false ? one : []));
  const failed = judged.filter(({ known }) => known === undefined).length;
  return { phantoms, failed, revived, known: held.size - phantoms.length - failed - tombstoned.size };
}

async function judge(deps: PhantomDeps, drops: readonly HeldDrop[]) {
  return mapLimited(drops, 1, async (one) => {
    try {
      return { one, known: await deps.knowsDrop(one) };
    } catch (error) {
      if (codeOf(error) === "unavailable" && subjectOf(error) === undefined) throw error;
      return { one, known: undefined };
    }
  });
}
