import type { Logger } from "../../kernel/logger.js";
import { SECOND } from "../../kernel/time.js";
import { gauge } from "../../telemetry/meters.js";
import { type Measurement, startSampling } from "../../telemetry/samples.js";
import type { RedisClient } from "./clusters.js";
import { type MasterInfo, readMasters, type ServerInfo } from "./servers.js";

const SAMPLE_MS = 10 * SECOND;

const up = gauge("timeline_redis_up", "Whether a Redis master answers (1) or not (0)");
const persistence = gauge(
  "timeline_redis_persistence_ok",
  "Whether the last snapshot (rdb), or the last write and rewrite of the append-only file (aof), worked",
);

const FIELDS = [
  field("timeline_redis_used_memory_bytes", "used_memory", "Memory that Redis uses"),
  field("timeline_redis_maxmemory_bytes", "maxmemory", "Memory that Redis may use; 0: no limit of its own"),
  field("timeline_redis_system_memory_bytes", "total_system_memory", "Memory of the machine Redis runs on"),
  field("timeline_redis_evicted_keys", "evicted_keys", "Keys evicted since Redis was started"),
  field("timeline_redis_expired_keys", "expired_keys", "Keys expired since Redis was started"),
  field("timeline_redis_rejected_connections", "rejected_connections", "Connections refused since Redis was started"),
  field("timeline_redis_connected_replicas", "connected_slaves", "Replicas of a Redis master"),
  field("timeline_redis_loading", "loading", "1 while Redis loads its data and answers nothing else"),
] as const;

function field(name: string, infoField: string, description: string) {
  return { infoField, gauge: gauge(name, description) };
}

/** Fields of INFO that are `ok` while that kind of persistence works. */
const STATUSES = {
  rdb: ["rdb_last_bgsave_status"],
  aof: ["aof_last_write_status", "aof_last_bgrewrite_status"],
} as const;

export function startRedisHealth(
  client: RedisClient,
  { log, everyMs = SAMPLE_MS }: { readonly log: Logger; readonly everyMs?: number },
): { close(): Promise<void> } {
  const take = async (): Promise<Measurement[]> => (await readMasters(client)).flatMap(measurementsOf);
  return startSampling([{ name: "redis", take }], { everyMs, log });
}

function measurementsOf({ node, reachable, info }: MasterInfo): Measurement[] {
  const answered = { gauge: up, labels: { node }, value: reachable ? 1 : 0 };
  return info === undefined
    ? [answered]
    : [answered, ...fieldMeasurements(node, info), ...statusMeasurements(node, info)];
}

function fieldMeasurements(node: string, info: ServerInfo): Measurement[] {
  return FIELDS.filter(({ infoField }) => info.has(infoField)).map(({ infoField, gauge }) => ({
    gauge,
    labels: { node },
    value: Number(info.get(infoField)),
  }));
}

function statusMeasurements(node: string, info: ServerInfo): Measurement[] {
  return Object.entries(STATUSES).map(([kind, fields]) => ({
    gauge: persistence,
    labels: { node, kind },
    value: fields.every((name) => (info.get(name) ?? "ok") === "ok") ? 1 : 0,
  }));
}
