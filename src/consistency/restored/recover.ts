import type { TimelineEvent } from "../../contracts/events.js";
import type { HeldDrop } from "../../contracts/timelines.js";
import { LOG_AGE_MS } from "../../contracts/times.js";
import { chunked, mapLimited } from "../../kernel/concurrency.js";
import { AppError } from "../../kernel/errors.js";
import { pause, SECOND, sharedNow } from "../../kernel/time.js";
import type { Fences } from "../../state/index.js";
import { untilApplied } from "../audit/audit.js";
import type { EventLog } from "../log.nats.js";
import { type Admit, type Reconcile, untilNow } from "../reconcile/reconcile.js";
import type { UpstreamView } from "../upstreams.grpc.js";
import { findLostEdges, type LostEdge } from "./edges.js";
import { findPhantoms } from "./phantoms.js";

interface RecoverDeps {
  readonly eventLog: Pick<EventLog, "readLogged" | "readUnapplied">;
  readonly upstreams: UpstreamView;
  readonly fences: Fences;
  readonly dropUserCaches: () => Promise<void>;
  readonly removeLogged: (seq: number) => Promise<void>;
  readonly admit: Admit;
  readonly reconcile: Reconcile;
}

export interface Findings {
  phantoms: HeldDrop[];
  known: number;
  failed: number;
  revived: HeldDrop[];
  edges: readonly LostEdge[];
}

interface Options {
  readonly stopping: AbortSignal;
  readonly progress?: (text: string) => void;
}

/** Time after which the upstreams hold all events admitted before the search began, unless they have lost them. */
const SETTLE_MS = 5 * SECOND;
const AT_ONCE = 32;
const EDGES_A_CALL = 1_000;

export type UndoLost = ReturnType<typeof createUndoLost>;

/** Corrects the log and the fences by the upstreams, whose database is older. */
export function createUndoLost(deps: RecoverDeps) {
  return {
    /**
     * Finds what the upstreams lost. Changes nothing but caches.
     *
     * @throws AppError `unavailable` if events are not applied yet
     */
    async find({ stopping, progress }: Options): Promise<Findings> {
      const until = sharedNow();
      await pause(SETTLE_MS, stopping);
      // An edge that is applied later would undo the correction. One that waits is in the fences, and leaves the log.
      if (!(await untilApplied(deps.eventLog.readUnapplied, until, stopping)))
        throw new AppError("unavailable", "events wait to be applied; start a process of the role fanout first");
      await deps.dropUserCaches();
      const findings: Findings = { phantoms: [], known: 0, failed: 0, revived: [], edges: [] };
      for await (const { phantoms, known, failed, revived } of findPhantoms(deps, until)) {
        if (stopping.aborted) return findings;
        findings.phantoms.push(...phantoms);
        findings.revived.push(...revived);
        findings.known += known;
        findings.failed += failed;
        progress?.(`${findings.known} drops known, ${findings.phantoms.length} not`);
      }
      findings.edges = await findLostEdges(deps, until);
      return findings;
    },
    /** Deletes the phantoms, undoes the edges, and admits events that the log lacks. Resolves once all are applied. */
    async undo({ phantoms, revived, edges }: Findings, { stopping, progress }: Options): Promise<void> {
      let done = 0;
      await mapLimited(phantoms, AT_ONCE, async (phantom) => {
        if (stopping.aborted) return;
        await deps.admit(deletionOf(phantom), false);
        progress?.(`${++done} of ${phantoms.length} drops deleted`);
      });
      // A log that was restored, too, has lost their deletions.
      await mapLimited(revived, AT_ONCE, (drop) => deps.admit(deletionOf(drop), true));
      for (const chunk of chunked(edges, EDGES_A_CALL)) {
        if (stopping.aborted) return;
        await undoEdges(deps, chunk);
      }
      await deps.reconcile(untilNow(sharedNow() - LOG_AGE_MS), { stopping });
      if (!stopping.aborted && !(await untilApplied(deps.eventLog.readUnapplied, sharedNow(), stopping)))
        throw new AppError("unavailable", "events wait to be applied; run the command again once they are");
    },
  };
}

function deletionOf({ drop: drop_id, author: user_id }: HeldDrop): TimelineEvent {
  return { name: "drop_deleted", payload: { drop_id, ...(user_id !== undefined && { user_id }) } };
}

/** Undoes edges. The messages go first: a refill of the fences would restore the versions. */
async function undoEdges(deps: RecoverDeps, edges: readonly LostEdge[]): Promise<void> {
  const seqs = edges.flatMap((edge) => edge.seqs);
  await mapLimited(seqs, AT_ONCE, (seq) => deps.removeLogged(seq));
  await deps.fences.replaceEdges(edges.map(({ upstream }) => upstream));
  await deps.fences.renewGenerations([...new Set(edges.map(({ upstream }) => upstream.following))]);
}
