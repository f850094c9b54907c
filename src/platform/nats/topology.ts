import {
  type ConsumerConfig,
  type ConsumerUpdateConfig,
  DeliverPolicy,
  type JetStreamManager,
  NatsError,
  nanos,
  type StreamConfig,
  type StreamInfo,
} from "nats";
import { STREAM } from "../../contracts/subjects.js";
import type { Logger } from "../../kernel/logger.js";
import { Refusal } from "../refusals.js";
import { unlessAbsent } from "./ask.js";
import { fileOf, readTopology, type Topology } from "./declared.js";

interface TopologyOptions {
  readonly replicas: number;
  readonly storageScale?: number | undefined;
  readonly ackWaitMs?: number;
  /** Number of streams that share the notifications. Default: 1. */
  readonly notifyParts?: number | undefined;
  /** A missing consumer of the log begins after it: all of them have acknowledged up to here. */
  readonly resumeAfter?: ResumeAfter | undefined;
}

type ResumeAfter = (logCreated: string) => Promise<number | undefined>;

/** The account or the server has no room (server/errors.json of nats-server). */
const NO_ROOM = new Set([10002, 10023, 10028, 10047, 10122]);
/** The account has a limit of streams or consumers, no JetStream, or wants a bound for each stream. */
const AT_LIMIT = new Set([10026, 10027, 10039, 10113, ...NO_ROOM]);
const SMALLEST_SCALE = 1 / 1024;
/** No stream with a bound gets a smaller one. */
export const SMALLEST_BYTES = 1024 * 1024;

/** JetStream reserves the `max_bytes` of all streams. If there is less room, all shrink by the same factor. */
export async function applyTopology(manager: JetStreamManager, options: TopologyOptions, log: Logger): Promise<void> {
  const topology = await readTopology(options.notifyParts);
  const declared = options.storageScale ?? 1;
  for (let scale = declared; ; scale /= 2) {
    try {
      return await applyOnce(manager, { topology, ...options, storageScale: scale }, log);
    } catch (error) {
      if (!isNoRoom(error) || scale < declared * SMALLEST_SCALE) throw limitRefusal(error);
      const fields = { error: (error as Error).message, scale: scale / 2 };
      log.warn(fields, "JetStream has no room for max_bytes of all streams; they are made smaller");
    }
  }
}

const isNoRoom = (error: unknown): boolean => error instanceof NatsError && NO_ROOM.has(error.api_error?.err_code ?? 0);

/** Returns a Refusal for an error about a limit, since waiting does not help; other errors as they are. */
function limitRefusal(error: unknown): unknown {
  if (!(error instanceof NatsError) || !AT_LIMIT.has(error.api_error?.err_code ?? 0)) return error;
  return new Refusal(`JetStream refuses a stream or consumer that the service needs: ${error.message}`, {
    cause: error,
    publicMessage: "JetStream refuses a stream or consumer",
    advice: "raise the limits of JetStream: of streams, consumers, memory or storage of the account, or of the server",
  });
}

interface AppliedTopology extends TopologyOptions {
  readonly topology: Topology;
  readonly storageScale: number;
}

/** Creates and changes streams and consumers; idempotent. One refusal, a TopologyRefusal, does not hold up the other streams and consumers. */
async function applyOnce(manager: JetStreamManager, options: AppliedTopology, log: Logger): Promise<void> {
  const { streams, consumers } = options.topology;
  const refusals: TopologyRefusal[] = [];
  const unlessRefused = async (applied: Promise<void>): Promise<void> => {
    await applied.catch((error: unknown) => {
      if (!(error instanceof TopologyRefusal)) throw error;
      refusals.push(error);
    });
  };
  for (const declared of streams) {
    const max_bytes = scaled(declared.max_bytes, options.storageScale);
    const wanted = { ...declared, num_replicas: options.replicas, max_bytes };
    await unlessRefused(applyStream(manager, wanted, log));
  }
  for (const { stream, config } of consumers) {
    const wanted = options.ackWaitMs === undefined ? config : { ...config, ack_wait: nanos(options.ackWaitMs) };
    await unlessRefused(applyConsumer(manager, { stream, config: wanted, resumeAfter: options.resumeAfter }, log));
  }
  if (refusals[0]) throw refusals[0];
}

/** Resolves to times of creation by names such as `DROPS` or `DROPS.planner`. */
export async function readCreated(
  manager: JetStreamManager,
  { streams, consumers }: Topology,
): Promise<ReadonlyMap<string, string>> {
  const asked = [
    ...streams.map(async ({ name }) => [name, await unlessAbsent(manager.streams.info(name), "stream")] as const),
    ...consumers.map(async ({ stream, config }) => {
      const name = config.durable_name as string;
      return [
        `${stream}.${name}`,
        await unlessAbsent(manager.consumers.info(stream, name), "stream", "consumer"),
      ] as const;
    }),
  ];
  const answers = await Promise.all(asked);
  return new Map(answers.flatMap(([name, info]) => (info ? [[name, info.created] as const] : [])));
}

/** A text that was added to the end of a description stays there. */
export function keepingNote(wanted: StreamConfig, { description = "" }: StreamConfig): StreamConfig {
  return wanted.description && description.startsWith(wanted.description) ? { ...wanted, description } : wanted;
}

/** Fields the server adds by itself do not count. */
export function differences(wanted: object, actual: object): string[] {
  const actualFields = actual as Record<string, unknown>;
  return Object.entries(wanted)
    .filter(([field, value]) => JSON.stringify(canonical(actualFields[field])) !== JSON.stringify(canonical(value)))
    .map(([field]) => field);
}

/** A field that a server leaves out equals false, 0 and "". */
function canonical(value: unknown): unknown {
  if (value === undefined || value === false || value === 0 || value === "") return null;
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .map(([key, inner]) => [key, canonical(inner)] as const)
      .filter(([, inner]) => inner !== null)
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}

export class TopologyRefusal extends Error {}

async function applyStream(manager: JetStreamManager, wanted: StreamConfig, log: Logger): Promise<void> {
  const existing = await unlessAbsent(manager.streams.info(wanted.name), "stream");
  if (!existing) {
    await manager.streams.add(wanted);
    log.info({ stream: wanted.name }, "stream created");
    return;
  }
  const fitting = { ...keepingNote(wanted, existing.config), max_bytes: keeping(wanted.max_bytes, existing) };
  const changed = differences(fitting, existing.config);
  if (changed.length === 0) return;
  await unlessUnchangeable(manager.streams.update(wanted.name, { ...existing.config, ...fitting }), {
    exists: `stream ${wanted.name} exists with other ${changed.join(", ")}`,
    advice: `back it up and delete it, or make ${fileOf(wanted.name)} fit it`,
  });
  log.info({ stream: wanted.name, changed }, "stream updated");
}

/** @throws TopologyRefusal if the server does not allow the change; a cluster without a leader answers 503 */
async function unlessUnchangeable(
  updated: Promise<unknown>,
  { exists, advice }: { readonly exists: string; readonly advice: string },
): Promise<void> {
  try {
    await updated;
  } catch (error) {
    const refusal = error instanceof NatsError ? error.api_error : undefined;
    if (!refusal || refusal.code === 503 || isNoRoom(error)) throw error;
    const why = `${exists}, and the server refuses to change that (${(error as Error).message})`;
    throw new TopologyRefusal(`${why}; ${advice}`, { cause: error });
  }
}

const scaled = (bytes: number, scale: number): number =>
  bytes > 0 ? Math.max(Math.floor(bytes * scale), SMALLEST_BYTES) : bytes;

/** A bound below the stored bytes would delete the difference: the stream keeps its bound, or its size. */
function keeping(wanted: number, { config, state }: StreamInfo): number {
  if (wanted <= 0 || state.bytes <= wanted) return wanted;
  return config.max_bytes > 0 ? Math.max(config.max_bytes, wanted) : state.bytes;
}

interface DeclaredConsumer {
  readonly stream: string;
  readonly config: ConsumerConfig;
  readonly resumeAfter?: ResumeAfter | undefined;
}

async function applyConsumer(manager: JetStreamManager, wanted: DeclaredConsumer, log: Logger): Promise<void> {
  const { stream, config: declared } = wanted;
  const name = declared.durable_name as string;
  const existing = await unlessAbsent(manager.consumers.info(stream, name), "stream", "consumer");
  if (!existing) {
    const config = await startOf(manager, wanted);
    await manager.consumers.add(stream, config);
    log.info({ stream, consumer: name, from: config.opt_start_seq }, "consumer created");
    return;
  }
  // The place where a consumer once began cannot be changed, and does not matter any more.
  const { deliver_policy, opt_start_seq } = existing.config;
  const config =
    deliver_policy === DeliverPolicy.StartSequence ? { ...declared, deliver_policy, opt_start_seq } : declared;
  const changed = differences(config, existing.config);
  if (changed.length === 0) return;
  await unlessUnchangeable(manager.consumers.update(stream, name, config as ConsumerUpdateConfig), {
    exists: `consumer ${name} of ${stream} exists with other ${changed.join(", ")}`,
    advice: `delete it, or make nats/consumers/${stream}.${name}.json fit it`,
  });
  log.info({ stream, consumer: name, changed }, "consumer updated");
}

async function startOf(
  manager: JetStreamManager,
  { stream, config, resumeAfter }: DeclaredConsumer,
): Promise<ConsumerConfig> {
  // Other streams are work queues, or are read as a whole.
  if (stream !== STREAM.drops || resumeAfter === undefined) return config;
  const after = await resumeAfter((await manager.streams.info(stream)).created);
  if (!after) return config;
  return { ...config, deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: after + 1 };
}
