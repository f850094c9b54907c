import { SUBJECT_OF } from "../../contracts/events.js";
import type { HeldDrop } from "../../contracts/timelines.js";
import { CLOCK_SKEW_MS, LOG_AGE_MS } from "../../contracts/times.js";
import { grouped, mapLimited } from "../../kernel/concurrency.js";
import { HOUR } from "../../kernel/time.js";
import type { Fences } from "../../state/fences/types.js";
import type { EventLog } from "../log.nats.js";
import { ADMISSION_LAG_MS, type TimeRange } from "../reconcile/reconcile.js";
import type { UpstreamView } from "../upstreams.grpc.js";
import { dropsIn, unlessUnanswered } from "./judge.js";

interface PhantomDeps {
  readonly eventLog: Pick<EventLog, "readLogged">;
  readonly fences: Pick<Fences, "tombstonedAmong" | "retentionStart">;
  readonly upstreams: Pick<UpstreamView, "listDropIds" | "findDrop">;
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

async function phantomsIn({ eventLog, fences, upstreams }: PhantomDeps, slice: TimeRange): Promise<Phantoms> {
  const held = new Map<string, HeldDrop>();
  for await (const { event } of eventLog.readLogged(slice, SUBJECT_OF.drop_created)) {
    const [one] = dropsIn(event);
    if (one && one.createdAt >= fences.retentionStart()) held.set(one.drop, one);
  }
  if (held.size === 0) return { phantoms: [], known: 0, failed: 0, revived: [] };
  const listed = await upstreams.listDropIds({
    since: slice.since - ADMISSION_LAG_MS - CLOCK_SKEW_MS,
    until: slice.until + CLOCK_SKEW_MS,
  });
  const tombstoned = await fences.tombstonedAmong([...held.keys()]);
  const revived = [...held.values()].filter(({ drop }) => tombstoned.has(drop) && listed?.get(drop) === true);
  const asked = [...held.values()].filter(({ drop }) => !listed?.has(drop) && !tombstoned.has(drop));
  const byAuthor = [...grouped(asked, ({ author = "" }) => author).values()];
  const judged = await mapLimited(byAuthor, AUTHORS_AT_ONCE, (drops) =>
    mapLimited(drops, 1, async (one) => {
      const known = await unlessUnanswered(async () => (await upstreams.findDrop(one)) !== undefined);
      return { one, known };
    }),
  );
  const phantoms = judged.flat().flatMap(({ one, known }) => (known === false ? one : []));
  const failed = judged.flat().filter(({ known }) => known === undefined).length;
  return { phantoms, failed, revived, known: held.size - phantoms.length - failed - tombstoned.size };
}
