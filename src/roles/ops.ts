import { createAnalysisOperations } from "../analysis/index.js";
import {
  admissionsOf,
  createReadDropEvents,
  EventLog,
  explainedAsJson,
  openAuditor,
  openExplain,
  reportsAsJson,
} from "../consistency/index.js";
import { standingNumber, subjectOf } from "../contracts/standings.js";
import {
  ANALYSES,
  AUTHORS,
  drawn,
  ERASURES,
  STANDINGS_SHOWN,
  standingAsJson,
  type Table,
} from "../contracts/tables.js";
import { createErasureStatus } from "../erasure/index.js";
import { createReadFanOuts } from "../fanout/index.js";
import { openOperators } from "../gateway/index.js";
import { pause } from "../kernel/time.js";
import { createReadQueues, keepHistory, type OpsRecords, startOps } from "../operators/console/index.js";
import { aboutDrop, createDeadLetterApi, createDeadLetters } from "../operators/dead-letters/index.js";
import { createTimelines } from "../reads/index.js";
import { authorAsJson, fillAsText, isFilled } from "../state/index.js";
import { connectUsers, isUnimplemented } from "../upstreams/upstreams.grpc.js";
import { listening } from "./listening.js";
import type { RoleDeps, RunningRole } from "./role.js";

/** Maximum number of analyses, of standings and of erasures that the console shows. */
const LISTED = 100;
const MAX_ANSWER_BYTES = 8 * 1_024 * 1_024;

/** The console of operators: what the commands print, over HTTP. */
export async function startOpsRole(deps: RoleDeps): Promise<RunningRole> {
  const { config, log } = deps;
  const { address, claim } = config.ops;
  const stopping = new AbortController();
  const operators = openOperators({ config: config.gateway, streams: deps.connections.state.streams, claim, log });
  const queues = createReadQueues(deps.connections.nats, config.nats.notifyParts);
  const history = keepHistory(queues);
  const users = connectUsers(config.upstreams.userServiceAddr as string, config.upstreams.tls, log);
  const console = await listening(
    `TIMELINE_OPS_ADDR=${address}`,
    startOps({
      address,
      keepAliveMs: config.process.httpKeepAliveMs,
      log,
      history: history.read,
      queues: withFill(deps, queues),
      authorize: operators.authorize,
      records: openRecords(deps, users),
      setStanding: async ({ subject, is_user, standing, until, why: reason, by }) =>
        users.setStanding({ ...subjectOf(subject, is_user), standing: standingNumber(standing), until, reason, by }),
      ...openTimelineChecks(deps, stopping.signal),
      ...openDeadLetters(deps, stopping.signal),
    }),
  );
  log.info({ port: console.port }, "serving the console");
  return {
    notReady: () => {
      const keys = operators.notReady();
      return keys && `ops: ${keys}`;
    },
    close: async (graceMs) => {
      stopping.abort();
      await Promise.all([console.close(graceMs), operators.close(), history.close()]);
      users.close();
    },
  };
}

/** The console says how far a fill of the log is that is under way. */
function withFill({ connections }: RoleDeps, readQueues: ReturnType<typeof createReadQueues>) {
  const { read } = connections.state.fill;
  return async () => {
    const [queues, fill] = await Promise.all([readQueues(), read().catch(() => undefined)]);
    return { ...queues, log_fill: fill && !isFilled(fill) ? fillAsText(fill) : null };
  };
}

function openRecords({ connections }: RoleDeps, users: ReturnType<typeof connectUsers>) {
  const { nats, publish, state } = connections;
  const erasures = createErasureStatus(state.erasedList, users);
  const analyses = createAnalysisOperations({ nats, publish });
  const authors = async () => [...(await state.authorStates.list())].map((stored) => authorAsJson(...stored));
  return {
    authors: recordsOf(AUTHORS, authors),
    standings: recordsOf(STANDINGS_SHOWN, () => listStandings(users)),
    erasures: recordsOf(ERASURES, () => erasures.list(LISTED), erasures.show),
    analyses: recordsOf(ANALYSES, () => analyses.first(LISTED), analyses.show),
  };
}

/** A users service without the method has no standings. */
async function listStandings(users: ReturnType<typeof connectUsers>) {
  try {
    return (await users.standings({ page_size: LISTED, page_token: "" })).entries.map(standingAsJson);
  } catch (error) {
    if (isUnimplemented(error)) return [];
    throw error;
  }
}

const recordsOf = <Row>(
  table: Table<Row>,
  list: () => Promise<readonly Row[]>,
  show?: OpsRecords["show"],
): OpsRecords => ({ list, drawn: async () => drawn(table, await list()), ...(show && { show }) });

function openTimelineChecks({ config, connections, log }: RoleDeps, stopping: AbortSignal) {
  const handles = { ...connections, log };
  const timelines = createTimelines({ ...handles, upstreams: connections.upstreams("reads"), config });
  const explain = openExplain(connections, timelines.hides);
  const auditor = openAuditor(config, handles, timelines);
  return {
    explain: async (asked: Parameters<typeof explain>[0]) => explainedAsJson(await explain(asked, stopping)),
    audit: async (user: string) => reportsAsJson({ home: await auditor.homes([user], { stopping, named: true }) }),
  };
}

function openDeadLetters({ connections, log }: RoleDeps, stopping: AbortSignal) {
  const { nats, publish } = connections;
  const operations = createDeadLetters({ nats, publish, upstreams: () => connections.upstreams("operator") });
  const limits = { maxAnswerBytes: () => MAX_ANSWER_BYTES, pause, stopping };
  const readEvents = createReadDropEvents(new EventLog(nats).readLogged);
  const readFanOuts = createReadFanOuts(connections);
  return {
    deadLetters: createDeadLetterApi({ operations, ...limits, log }),
    fanOuts: async (drop: string) => {
      const admitted = admissionsOf(await readEvents(drop));
      const recorded = await readFanOuts(drop, admitted);
      return {
        drop,
        admitted,
        ...recorded,
        dead_letters: await aboutDrop(operations.list({}, { bodies: true }), drop),
      };
    },
  };
}
