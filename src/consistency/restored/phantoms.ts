import { SUBJECT_OF } from "../../contracts/events.js";
import type { HeldDrop } from "../../contracts/timelines.js";
import { CLOCK_SKEW_MS, LOG_AGE_MS } from "../../contracts/times.js";
import { grouped, mapLimited } from "../../kernel/concurrency.js";
import { HOUR } from "../../kernel/time.js";
import type { Fences } from "../../state/index.js";
import type { EventLog } from "../log.nats.js";
import { ADMISSION_LAG_MS, type TimeRange } from "../reconcile/reconcile.js";
import type { UpstreamView } from "../upstreams.grpc.js";
import { dropsIn, unlessUnanswered } from "./lost-by-restore.js";

interface PhantomDeps {
  readonly eventLog: Pick<EventLog, "readLogged">;
  readonly fences: Pick<Fences, "tombstonedAmong" | "retentionStart">;
  readonly upstreams: Pick<UpstreamView, "listDropIds" | "findDrop">;
}

export interface Phantoms {
  readonly phantoms: readonly HeldDrop[];
  readonly known: number;
  /** Number of drops whose authors could not be asked about. */
  readonly failed: number;
  /** Drops deleted since the backup: the upstreams have them again, and timelines still hide them. */
  readonly revived: readonly HeldDrop[];
}

const SLICE_MS = 6 * HOUR;
const AUTHORS_AT_ONCE = 8;

/** Looks up every drop of the log admitted before `until` (ms since the epoch), one slice of time after the other. */
export async function* findPhantoms(deps: PhantomDeps, until: number): AsyncGenerator<Phantoms> {
  for (let since = until - LOG_AGE_MS - HOUR; since < until; since += SLICE_MS)
    yield await phantomsIn(deps, { since, until: Math.min(since + SLICE_MS, until) });
}

async function phantomsIn({ eventLog, fences, upstreams }: PhantomDeps, slice: TimeRange): Promise<Phantoms> {
  const logged = new Map<string, HeldDrop>();
  for await (const { event } of eventLog.readLogged(slice, SUBJECT_OF.drop_created)) {
    const [drop] = dropsIn(event);
    if (drop && drop.createdAt >= fences.retentionStart()) logged.set(drop.drop, drop);
  }
  if (logged.size === 0) return { phantoms: [], known: 0, failed: 0, revived: [] };
  const listed = await upstreams.listDropIds({
    since: slice.since - ADMISSION_LAG_MS - CLOCK_SKEW_MS,
    until: slice.until + CLOCK_SKEW_MS,
  });
  const tombstoned = await fences.tombstonedAmong([...logged.keys()]);
  const revived = [...logged.values()].filter(({ drop }) => tombstoned.has(drop) && listed?.get(drop) === true);
  const asked = [...logged.values()].filter(({ drop }) => !listed?.has(drop) && !tombstoned.has(drop));
  const byAuthor = [...grouped(asked, ({ author = "" }) => author).values()];
  const judged = await mapLimited(byAuthor, AUTHORS_AT_ONCE, (drops) =>
    mapLimited(drops, 1, async (drop) => {
      const known = await unlessUnanswered(async () => (await upstreams.findDrop(drop)) !== undefined);
      return { drop, known };
    }),
  );
  const phantoms = judged.flat().flatMap(({ drop, known }) => (known === false ? drop : []));
  const failed = judged.flat().filter(({ known }) => known === undefined).length;
  return { phantoms, failed, revived, known: logged.size - phantoms.length - failed - tombstoned.size };
}
