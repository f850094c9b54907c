import type { NatsConnection } from "nats";
import { SUBJECT_OF } from "../../contracts/events.js";
import { CONSUMER, STREAM } from "../../contracts/subjects.js";
import type { Logger } from "../../kernel/logger.js";
import type { Loop } from "../../kernel/loop.js";
import type { Upstreams } from "../../platform/grpc/upstreams.js";
import { createStoredMessages } from "../../platform/nats/message.js";
import type { Publish } from "../../platform/nats/publish.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { Fences } from "../../records/fences.js";
import { createReadWaiting, createWaiting } from "../../records/waiting.redis.js";
import type { AuditConfig } from "../config.js";
import { createAdmit, createReadLogged, createReadUnapplied } from "../log.nats.js";
import { observeRecovery } from "../observe.js";
import type { Reconcile } from "../reconcile/reconcile.js";
import type { LossDetector } from "../redis-loss/loss-detector.js";
import { createFollows, createKnowsDrop, createListDropIds, createListEdges } from "../upstreams.grpc.js";
import { dropUserCaches } from "./caches.redis.js";
import { edgeIn, findLostEdges } from "./edges.js";
import { readFencedEdges } from "./fenced-edges.redis.js";
import { findPhantoms } from "./phantoms.js";
import { createUndoLost, type UndoLost } from "./recover.js";
import { createReadSample, dropIn } from "./samples.nats.js";
import { createSamples } from "./samples.redis.js";
import { startRestoreWatch } from "./watch.js";

export type { UndoLost };

const GRAPH = "graph.*";

interface Handles {
  readonly scripts: Scripts;
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly upstreams: (caller: "reconcile" | "operator") => Upstreams;
  readonly fences: Fences;
  readonly log: Logger;
}

/** Looks whether the upstreams know what the log and local hold, in the process that writes the server identity record. */
export function watchForRestores(
  { audit: { settleMs } }: { readonly audit: AuditConfig },
  { scripts, nats, upstreams, fences, log }: Omit<Handles, "publish">,
  losses: LossDetector,
): Loop {
  observeRecovery.behind(() => losses.behind !== undefined);
  const ask = () => upstreams("reconcile");
  return startRestoreWatch({
    samples: createSamples({
      ...{ scripts, fences, settleMs },
      readDrops: createReadSample(nats, SUBJECT_OF.drop_created, dropIn),
      readEdges: createReadSample(nats, GRAPH, edgeIn),
    }),
    follows: createFollows(ask),
    isKnown: createKnowsDrop(ask),
    listDropIds: createListDropIds(ask),
    inCharge: () => losses.inCharge && !losses.isLost,
    marked: () => losses.behind,
    mark: (behind) => {
      losses.behind = behind;
    },
    settleMs,
    log,
  });
}

/** Makes the log and the fences what the upstreams say, after a restore of their database. */
export function openUndo(handles: Handles, reconcile: Reconcile): UndoLost {
  const { scripts, nats, publish, fences, upstreams } = handles;
  const ask = () => upstreams("operator");
  const { tombstonedAmong, retentionStart } = fences;
  const asked = { listDropIds: createListDropIds(ask), knowsDrop: createKnowsDrop(ask) };
  const drops = { readCreated: createReadLogged(nats, SUBJECT_OF.drop_created), tombstonedAmong, retentionStart };
  const readFenced = () => readFencedEdges(scripts);
  const edges = { readFenced, listEdges: createListEdges(ask), follows: createFollows(ask) };
  const messages = createStoredMessages(nats);
  const waiting = createWaiting(scripts);
  return createUndoLost({
    findPhantoms: (until) => findPhantoms({ ...drops, ...asked }, until),
    findLostEdges: (until) => findLostEdges({ readGraph: createReadLogged(nats, GRAPH), ...edges }, until),
    readUnapplied: createReadUnapplied(nats, createReadWaiting(scripts)),
    dropUserCaches: () => dropUserCaches(scripts),
    removeLogged: async (seq) => {
      // NATS discards what waits together with its message.
      await waiting.remove({ consumer: CONSUMER.graph, seq });
      await messages.remove(STREAM.drops, seq);
    },
    admit: createAdmit(publish),
    reconcile,
    fences,
  });
}
