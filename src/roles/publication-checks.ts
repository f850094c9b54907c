import { observeAudit } from "../consistency/audit/observe.js";
import { checkPublication } from "../consistency/audit/publications.js";
import { createSampling } from "../consistency/audit/sampling.js";
import { createSources } from "../consistency/audit/sources.grpc.js";
import { createReadEntry } from "../consistency/audit/timelines.redis.js";
import { createReadBacklogStart } from "../consistency/redis-loss/log.nats.js";
import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { type Consuming, consume } from "../platform/nats/consume.js";
import { createAuditing } from "./auditing.js";
import type { RoleDeps } from "./role.js";

/** Publications held until they are checked, or being checked. */
const MOST_HELD = 1_024;

/**
 * Starts the checks of publications; `maybeLost`: while Redis may lack data.
 * Switched off, completions are acked all the same: nothing piles up behind the consumer.
 */
export function startPublicationChecks({ config, connections, log }: RoleDeps, maybeLost: () => boolean): Consuming {
  const { nats, scripts, fences, upstreams, topology } = connections;
  const percent = config.audit.publicationsPercent;
  const delayMs = config.audit.publicationsDelayMs;
  const { repair } = createAuditing(config, connections, log);
  const deps = {
    ...createSources(() => upstreams("reads"), config.fanout.chunkSize),
    readEntry: createReadEntry(scripts),
    tombstonedAmong: fences.tombstonedAmong,
    unfollowedAmong: fences.unfollowedAmong,
    readBacklogStart: createReadBacklogStart(nats),
    repair,
    maybeLost,
    recheckMs: delayMs,
  };
  const process = createSampling({
    check: (completed, context) => checkPublication(deps, completed, context),
    observe: observeAudit.published,
    percent,
    rate: config.audit.publicationsRate,
    delayMs,
  });
  return consume(nats, {
    stream: STREAM.completions,
    consumer: CONSUMER.publications,
    concurrency: MOST_HELD,
    ackWaitMs: config.nats.ackWaitMs,
    process,
    stopped: topology.look,
    log,
  });
}
