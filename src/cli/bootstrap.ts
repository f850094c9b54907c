import { checkBelonging } from "../consistency/index.js";
import { oneLine } from "../kernel/errors.js";
import { silent } from "../kernel/logger.js";
import { SECOND } from "../kernel/time.js";
import { printableAddresses } from "../kernel/urls.js";
import { connectNats } from "../platform/nats/connect.js";
import { createPublisher } from "../platform/nats/publish.js";
import { connected } from "../platform/redis/connect.js";
import { redisError } from "../platform/redis/errors.js";
import { adviceOn } from "../platform/refusals.js";
import { createTimelines, type Timelines } from "../reads/index.js";
import { Closers } from "../roles/closers.js";
import { type Config, readCommandConfig } from "../roles/config/config.js";
import { checkFiles } from "../roles/config/files.js";
import {
  type Connections,
  firstAnswer,
  missingUpstreams,
  natsOptions,
  openRedis,
  retryUntilDone,
  upstreamsOnDemand,
  withState,
} from "../roles/connections.js";
import { createPacedProgress, type Say, toTerminal } from "./terminal.js";

/** Shells use this exit code after Ctrl-C: 128 and the number of the signal. */
const INTERRUPTED = 130;

const REDIS_TIMEOUT_MS = 10 * SECOND;

/** The upstreams are connected at their first call. */
type LogConnections = Pick<Connections, "nats" | "publish" | "publishAll" | "upstreams">;

export interface Opening {
  readonly config: Config;
  readonly name: string;
  readonly closers: Closers;
}

/** @throws ConfigError; and an error if a server does not answer within ten seconds */
export async function withConnections<Opened>(
  { name, open }: { readonly name: string; readonly open: (opening: Opening) => Promise<Opened> },
  run: (connections: Opened, config: Config) => Promise<number>,
): Promise<number> {
  const config = readCommandConfig(process.env);
  checkFiles(config);
  // A pipe may be closed before all output is written (`| head`).
  process.stdout.on("error", () => process.exit());
  const closers = new Closers();
  try {
    return await run(await open({ config, name, closers }), config);
  } finally {
    await closers.closeAll(toTerminal);
  }
}

export interface Job<Opened> {
  readonly connections: Opened;
  readonly config: Config;
  /** Aborts on SIGINT and SIGTERM. A second signal ends the process. */
  readonly stopping: AbortSignal;
  readonly say: Say;
}

export interface Answer {
  readonly json: object;
  readonly text: string;
  readonly failed?: boolean;
}

/** Shows the progress of a job and prints its answer. */
export function runJob<Opened>(
  { name, open, json }: { name: string; open: (opening: Opening) => Promise<Opened>; json: boolean | undefined },
  work: (job: Job<Opened>) => Promise<Answer | undefined>,
): Promise<number> {
  return withConnections({ name, open }, async (connections, config) => {
    const interrupted = new AbortController();
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());
    const stopping = interrupted.signal;
    const { say, end } = createPacedProgress();
    const answer = await work({ connections, config, stopping, say }).finally(end);
    return printAnswer(answer, json, stopping.aborted ? INTERRUPTED : undefined);
  });
}

/** Prints an answer, and returns the exit code. 1: the work failed, or has no answer because nothing was done. */
export function printAnswer(
  answer: Answer | undefined,
  json: boolean | undefined,
  code = !answer || answer.failed ? 1 : 0,
): number {
  // It is set before it is printed: a pipe that is closed ends the process.
  process.exitCode = code;
  if (answer) console.log(json ? JSON.stringify(answer.json) : answer.text);
  return code;
}

export async function openLog({ config, name, closers }: Opening): Promise<LogConnections> {
  const upstreams = upstreamsOnDemand(config.upstreams, closers, silent);
  const nats = await connectNats({ ...natsOptions(config.nats, name), failFast: true }, silent).catch(
    (error: unknown) => {
      throw unreachable(`NATS at ${printableAddresses(config.nats.servers)}`, "NATS_URL", error);
    },
  );
  closers.add("NATS", () => nats.drain().catch(() => undefined));
  return { nats, ...createPublisher(nats, { notifyParts: config.nats.notifyParts }), upstreams };
}

/** @throws an error naming the addresses of upstreams that are not configured */
export async function openLogAndUpstreams(opening: Opening): Promise<LogConnections> {
  requireUpstreams(opening);
  return openLog(opening);
}

function requireUpstreams({ config }: Opening): void {
  const missing = missingUpstreams(config.upstreams);
  if (missing.length > 0) throw new Error(`set ${missing.join(" and ")}: this command asks the upstreams`);
}

export const openState = async (opening: Opening): Promise<Connections> =>
  withState(opening.config, { ...(await openLog(opening)), redis: await openRedisAlone(opening) }, silent);

export async function openTimelines(opening: Opening): Promise<Connections> {
  requireUpstreams(opening);
  const connections = await openState(opening);
  await checkBelonging(connections);
  // Some commands do not call the posts service, and reads hide a drop that is older than its retention.
  await connections.state.retention.refresh().catch(() => false);
  return connections;
}

/** `onlyLook`: Redis Clusters that are empty stay so. */
export const openRedisAlone = ({ config, closers }: Opening, look: { readonly onlyLook?: boolean } = {}) =>
  openRedis(config.redis, silent, { closers, answer: (redis) => untilRedisAnswers(redis, config.redis.urls, look) });

export const timelinesOn = (connections: Connections, config: Config): Timelines =>
  createTimelines({ ...connections, upstreams: connections.upstreams("reads"), config, log: silent });

async function untilRedisAnswers(
  redis: Parameters<typeof firstAnswer>[0],
  urls: readonly string[],
  look: { readonly onlyLook?: boolean },
) {
  const { scripts } = redis;
  const until = Date.now() + REDIS_TIMEOUT_MS;
  let reason: unknown;
  // A command that fails does not name why there is no connection.
  scripts.client.on("error", (error: Error & { lastNodeError?: Error }) => {
    reason = redisError(error.lastNodeError ?? error);
  });
  try {
    await connected(scripts.client);
    return await retryUntilDone(
      () => firstAnswer(redis, look),
      silent,
      "",
      () => Date.now() < until,
    );
  } catch (error) {
    throw unreachable(`Redis at ${printableAddresses(urls)}`, "REDIS_URL", reason ?? error);
  }
}

function unreachable(server: string, variable: string, error: unknown): Error {
  const advice = adviceOn(error, `start it there, or set ${variable}`);
  const reason = oneLine(error).replace(/^(NATS|Redis): /, "");
  return new Error(`${server}: ${reason}; ${advice}`, { cause: error });
}
