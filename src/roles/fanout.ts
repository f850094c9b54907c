import { observeAudit } from "../consistency/audit/observe.js";
import { createContinuity } from "../consistency/redis-loss/continuity.redis.js";
import { startGuard } from "../consistency/redis-loss/guard.js";
import { createReadLogMark } from "../consistency/redis-loss/log.nats.js";
import { createDeadLetters, startDeadLetterService } from "../dead-letters/index.js";
import { createFanout } from "../fanout/index.js";
import { composeTimelines } from "./api.js";
import { startFanoutConsumers } from "./consumers.js";
import { createMending } from "./mending.js";
import { startPatrolling } from "./patrolling.js";
import { startPublicationChecks } from "./publication-checks.js";
import { createReplaying } from "./replaying.js";
import type { RoleDeps, RunningRole } from "./role.js";
import { VERSION } from "./version.js";

/** Events into timelines. */
export async function startFanoutRole(deps: RoleDeps): Promise<RunningRole> {
  const { config, connections, log } = deps;
  const { nats, publish, scripts } = connections;
  const { handlers, apply } = createFanout({
    ...connections,
    config,
    upstreams: connections.upstreams("fanout"),
    untilCovered: (admittedAt, stopping) => guard.untilCovered(admittedAt, stopping),
  });
  const guard = startGuard({
    continuity: createContinuity(scripts, connections.fenced),
    readLogMark: createReadLogMark(nats),
    log,
    mending: createMending(deps, createReplaying(connections, apply)),
  });
  observeAudit.started();
  const trimming = composeTimelines(deps).startTrimming();
  const patrol = startPatrolling(deps, guard.broken);
  const consuming = [...startFanoutConsumers(deps, handlers), startPublicationChecks(deps, guard.broken)];
  const operations = createDeadLetters({ nats, publish, upstreams: () => connections.upstreams("operator") });
  const deadLetters = await startDeadLetterService({ nats, operations, version: VERSION, log });
  return {
    notReady: () => (consuming.every((one) => one.healthy()) ? undefined : "fanout: not every consumer is pulling"),
    close: async (graceMs) => {
      await Promise.all([
        guard.close(),
        patrol.close(),
        trimming.close(),
        deadLetters.close(),
        ...consuming.map((one) => one.close(graceMs)),
      ]);
    },
  };
}
