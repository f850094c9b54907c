import {
  EventLog,
  openAuditor,
  openExplain,
  openRecovery,
  samplePublications,
  startAudits,
  startExplainService,
  startLogFill,
  watchForLosses,
  watchForRestores,
} from "../consistency/index.js";
import { createForgetTimelines } from "../erasure/index.js";
import { createFanout, type Fanout } from "../fanout/index.js";
import { startStreamService } from "../gateway/index.js";
import { VERSION } from "../kernel/version.js";
import { createDeadLetters, startDeadLetterService } from "../operators/dead-letters/index.js";
import { startPartRemoval } from "../platform/nats/notify-streams.js";
import { createTimelines } from "../reads/index.js";
import type { Forget } from "../state/index.js";
import { startFanoutConsumers, startForgetting } from "./consumers.js";
import type { RoleDeps, RunningRole } from "./role.js";

export async function startFanoutRole(deps: RoleDeps): Promise<RunningRole> {
  const { config, connections, wraps, log } = deps;
  const checks = wraps?.limits?.publicationChecks;
  const { nats, publish, storeDeadLetter } = connections;
  const handles = { ...connections, log };
  const timelines = createTimelines({ ...handles, upstreams: connections.upstreams("reads"), config });
  const { handlers, apply, veilUsers, startCrossings } = createFanout({
    ...handles,
    config,
    upstreams: connections.upstreams("fanout"),
    fillPulls: timelines.fillPulls,
    untilCovered: (admittedAt, stopping) => losses.untilCovered(admittedAt, stopping),
    sample: samplePublications(checks),
    recentMs: wraps?.limits?.recentReadersMs,
    restRate: wraps?.limits?.restRate,
  });
  const recovery = openRecovery(config, handles, { apply, storeDeadLetter, version: VERSION });
  const losses = watchForLosses(handles, {
    ...recovery,
    recover: async (...loss) => {
      await connections.state.authorStates.beginAnew();
      return recovery.recover(...loss);
    },
  });
  const restores = watchForRestores(config, handles, losses);
  const fill = startLogFill(handles, losses);
  const eventLog = new EventLog(nats);
  const loops = [timelines.startTrimming(), startStandingsFill(deps, veilUsers)];
  const crossings = startCrossings(async () => (await eventLog.readBacklog()).start);
  const audits = startAudits(config, handles, {
    auditor: openAuditor(config, handles, timelines),
    hides: timelines.hides,
    maybeLost: losses.maybeLost,
    stopped: () => connections.topology.check(),
    checks,
  });
  const removal = startPartRemoval(nats, { count: config.nats.notifyParts, log });
  // An acknowledgement would hide that nobody has worked on the log yet.
  await losses.checked;
  const consumers = [...startFanoutConsumers(deps, handlers), await startForgetting(deps, "timelines", forgetIn(deps))];
  const operations = createDeadLetters({ nats, publish, upstreams: () => connections.upstreams("operator") });
  const operators = { nats, version: VERSION, log };
  const services = [
    await startDeadLetterService({ ...operators, operations }),
    await startExplainService({ ...operators, explain: openExplain(connections, timelines.hides) }),
    await startStreamService({ ...operators, logOut: connections.state.streams.logOut }),
  ];
  return {
    notReady: () =>
      [...consumers, audits.checks].every((consumer) => consumer.healthy())
        ? undefined
        : "fanout: not every consumer is pulling",
    close: async (graceMs) => {
      await Promise.all([
        losses.close(),
        restores.close(),
        fill.close(),
        audits.close(graceMs),
        ...loops.map((loop) => loop.close()),
        crossings.close(),
        removal.close(),
        ...services.map((service) => service.close()),
        ...consumers.map((consumer) => consumer.close(graceMs)),
      ]);
    },
  };
}

function startStandingsFill({ connections, log }: RoleDeps, veil: Fanout["veilUsers"]) {
  const { standings, readStandings } = connections.state;
  return standings.startFill(log, readStandings(connections.upstreams("reads")), veil);
}

function forgetIn({ connections }: RoleDeps): Forget {
  const { nats, state } = connections;
  const log = new EventLog(nats, state.waiting.read);
  return createForgetTimelines({
    ...connections,
    upstreams: connections.upstreams("fanout"),
    readBacklogStart: async () => (await log.readUnapplied()).start,
  });
}
