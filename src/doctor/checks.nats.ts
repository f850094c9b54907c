import type { JetStreamManager, NatsConnection } from "nats";
import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { silent } from "../kernel/logger.js";
import { printableAddresses } from "../kernel/server-url.js";
import { connectNats, type NatsOptions } from "../platform/nats/connect.js";
import { readTopology } from "../platform/nats/declared.js";
import { differences } from "../platform/nats/topology.js";
import { type Check, checked, compareVersions, type Finding } from "./doctor.js";

const OLDEST = "2.9.10";
/** Older ones get no security fixes (NATS advisories, 2026). */
const MAINTAINED = "2.12.0";
const ADVICE = "start nats-server there with JetStream (-js), or set NATS_URL to where it is";

/** Checks NATS: reachable, new enough, with JetStream, and our streams and consumers as declared. */
export function natsChecks(options: NatsOptions): Check[] {
  return [checked(`NATS ${printableAddresses(options.servers)}`, ADVICE, () => look(options))];
}

async function look(options: NatsOptions): Promise<readonly Finding[]> {
  const connection = await connectNats({ ...options, impatient: true }, silent);
  try {
    const what = `NATS ${connection.getServer()}`;
    const findings = [versionFinding(what, connection.info?.version ?? "0")];
    const manager = await jetstream(connection);
    if (!manager)
      return [
        ...findings,
        { what, state: "fault", says: "JetStream is off", advice: "start nats-server with -js or a jetstream block" },
      ];
    return [
      ...findings,
      { what, state: "ok", says: "JetStream is on" },
      ...(await streamFindings(manager)),
      ...(await backlog(manager)),
    ];
  } finally {
    await connection.close();
  }
}

const jetstream = (connection: NatsConnection): Promise<JetStreamManager | undefined> =>
  connection.jetstreamManager().catch(() => undefined);

function versionFinding(what: string, version: string): Finding {
  if (compareVersions(version, OLDEST) < 0)
    return { what, state: "fault", says: `version ${version}`, advice: `use ${OLDEST} or newer` };
  if (compareVersions(version, MAINTAINED) >= 0) return { what, state: "ok", says: `version ${version}` };
  return {
    what,
    state: "warning",
    says: `version ${version}`,
    advice: `works, but gets no security fixes: use ${MAINTAINED} or newer`,
  };
}

async function streamFindings(manager: JetStreamManager): Promise<Finding[]> {
  const { streams } = await readTopology();
  return Promise.all(
    streams.map(async (wanted): Promise<Finding> => {
      const what = `stream ${wanted.name}`;
      const held = await manager.streams.info(wanted.name).catch(() => undefined);
      if (!held)
        return { what, state: "warning", says: "is not there", advice: "the service creates it when it starts" };
      const { num_replicas, max_bytes } = held.config;
      const changed = differences({ ...wanted, num_replicas, max_bytes }, held.config);
      if (changed.length === 0) return { what, state: "ok", says: `${held.state.messages} messages` };
      return {
        what,
        state: "warning",
        says: `differs in ${changed.join(", ")}`,
        advice: `compare with nats/streams/${wanted.name}.json; a start of the service updates what can be`,
      };
    }),
  );
}

async function backlog(manager: JetStreamManager): Promise<Finding[]> {
  const consumers = [
    [STREAM.drops, CONSUMER.planner],
    [STREAM.drops, CONSUMER.graph],
    [STREAM.fanout, CONSUMER.worker],
  ] as const;
  return Promise.all(
    consumers.map(async ([stream, consumer]): Promise<Finding> => {
      const what = `consumer ${consumer}`;
      const info = await manager.consumers.info(stream, consumer).catch(() => undefined);
      if (!info)
        return { what, state: "warning", says: "is not there", advice: "the service creates it when it starts" };
      return { what, state: "ok", says: `${info.num_pending} waiting, ${info.num_ack_pending} in hand` };
    }),
  );
}
