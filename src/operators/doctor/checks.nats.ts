import type { JetStreamManager, NatsConnection } from "nats";
import { LEAST_MAX_PAYLOAD } from "../../contracts/fanout.js";
import { CONSUMER, STREAM } from "../../contracts/subjects.js";
import { grouped } from "../../kernel/concurrency.js";
import { silent } from "../../kernel/logger.js";
import { printableAddresses } from "../../kernel/urls.js";
import { connectNats, type NatsOptions, payloadFault } from "../../platform/nats/connect.js";
import { fileOf, readTopology } from "../../platform/nats/declared.js";
import { oldParts } from "../../platform/nats/notify-streams.js";
import { differences, keepingNote, SMALLEST_BYTES } from "../../platform/nats/topology.js";
import { adviceOn } from "../../platform/refusals.js";
import { type About, about, type Check, checked, type Finding, isOlder, versionFinding } from "./doctor.js";

const OLDEST = "2.9.10";
/** Older ones get no security fixes (NATS advisories, 2026). */
const MAINTAINED = "2.12.0";
const advice = (error: unknown): string =>
  adviceOn(error, "start nats-server there with JetStream (-js), or set NATS_URL to where it is");

/** The name of a stream or consumer that is not there. */
type Missing = string;

export function natsChecks(options: NatsOptions, notifyParts: number): Check[] {
  return [checked(`NATS ${printableAddresses(options.servers)}`, advice, () => examineNats(options, notifyParts))];
}

async function examineNats(options: NatsOptions, notifyParts: number): Promise<readonly Finding[]> {
  const connection = await connectNats({ ...options, failFast: true }, silent);
  try {
    const server = about(`NATS ${connection.getServer()}`);
    const version = supportFinding(server, connection.info?.version ?? "0");
    const payload = payloadFault(connection);
    const larger = `set max_payload to ${LEAST_MAX_PAYLOAD} or more; jobs of large fan-outs do not fit (the default is 1 MiB)`;
    const manager = await connection.jetstreamManager().catch(() => undefined);
    if (!manager) return [version, server.fault("JetStream is off", "start nats-server with -js or a jetstream block")];
    return [
      version,
      server.ok("JetStream is on"),
      ...(payload === undefined ? [] : [server.fault(payload, larger)]),
      ...(await limitFindings(server, manager, notifyParts)),
      ...missingInOne(server, [...(await streamFindings(manager, notifyParts)), ...(await consumerFindings(manager))]),
      ...(await oldPartFindings(connection, notifyParts)),
    ];
  } finally {
    await connection.close();
  }
}

function supportFinding(server: About, version: string): Finding {
  const finding = versionFinding(server, version, OLDEST);
  if (finding.state === "fault" || !isOlder(version, MAINTAINED)) return finding;
  return server.warning(finding.says, `works, but gets no security fixes: use ${MAINTAINED} or newer`);
}

/** Compares the limits of the account with what a start creates: a limit that is not above zero is none. */
async function limitFindings(server: About, manager: JetStreamManager, notifyParts: number): Promise<Finding[]> {
  const { limits, streams: existing } = await manager.getAccountInfo();
  const { streams, consumers } = await readTopology(notifyParts);
  const isThere = await Promise.all(
    streams.map(({ name }) =>
      manager.streams.info(name).then(
        () => true,
        () => false,
      ),
    ),
  );
  const missing = streams.filter((_, index) => !isThere[index]);
  const perStream = grouped(consumers, ({ stream }) => stream).values();
  const mostConsumers = Math.max(...[...perStream].map(({ length }) => length));
  const needed = [
    ["max_streams", limits.max_streams, existing + missing.length],
    ["max_consumers", limits.max_consumers, mostConsumers],
    ["max_file", limits.max_storage, streams.length * SMALLEST_BYTES],
    ["max_bytes of a stream", limits.storage_max_stream_bytes, SMALLEST_BYTES],
  ] as const;
  const faults = needed
    .filter(([, limit, need]) => limit > 0 && limit < need)
    .map(([name, limit, need]) =>
      server.fault(`${name} of JetStream is ${limit}`, `set it to ${need} or more: the service does not start`),
    );
  const unbounded = limits.max_bytes_required ? missing.filter(({ max_bytes }) => max_bytes <= 0) : [];
  if (unbounded.length === 0) return faults;
  const names = unbounded.map(({ name }) => name).join(", ");
  return [...faults, server.fault("max_bytes_required of JetStream is on", `turn it off: ${names} have none`)];
}

/** An empty server lacks all of them: one finding names what is not there. */
function missingInOne(server: About, findings: readonly (Finding | Missing)[]): Finding[] {
  const missing = findings.filter((finding) => typeof finding === "string");
  const there = findings.filter((finding) => typeof finding !== "string");
  if (missing.length === 0) return there;
  const says = there.length === 0 ? "has no stream of the service yet" : `lacks ${missing.join(", ")}`;
  return [...there, server.warning(says, "the service creates what is not there when it starts")];
}

async function streamFindings(manager: JetStreamManager, notifyParts: number): Promise<(Finding | Missing)[]> {
  const { streams } = await readTopology(notifyParts);
  return Promise.all(
    streams.map(async (wanted): Promise<Finding | Missing> => {
      const name = `stream ${wanted.name}`;
      const stream = about(name);
      const actual = await manager.streams.info(wanted.name).catch(() => undefined);
      if (!actual) return name;
      const { num_replicas, max_bytes } = actual.config;
      const changed = differences({ ...keepingNote(wanted, actual.config), num_replicas, max_bytes }, actual.config);
      if (changed.length === 0) return stream.ok(`${actual.state.messages} messages`);
      const advice = `compare with ${fileOf(wanted.name)}; a start of the service updates what can be`;
      return stream.warning(`differs in ${changed.join(", ")}`, advice);
    }),
  );
}

async function oldPartFindings(connection: NatsConnection, notifyParts: number): Promise<Finding[]> {
  const says = `is of another TIMELINE_NOTIFY_PARTS than ${notifyParts}`;
  const advice = "give all processes the same number; fanout removes it once it has been empty for ten minutes";
  return (await oldParts(connection, notifyParts)).map(({ part }) =>
    about(`stream ${part.stream}`).warning(says, advice),
  );
}

async function consumerFindings(manager: JetStreamManager): Promise<(Finding | Missing)[]> {
  const consumers = [
    [STREAM.drops, CONSUMER.planner],
    [STREAM.drops, CONSUMER.graph],
    [STREAM.fanout, CONSUMER.worker],
    [STREAM.fanout, CONSUMER.hotGraph],
    [STREAM.fanout, CONSUMER.rest],
  ] as const;
  return Promise.all(
    consumers.map(async ([stream, consumer]): Promise<Finding | Missing> => {
      const name = `consumer ${consumer}`;
      const subject = about(name);
      const info = await manager.consumers.info(stream, consumer).catch(() => undefined);
      if (!info) return name;
      return subject.ok(`${info.num_pending} waiting, ${info.num_ack_pending} in flight`);
    }),
  );
}
