import { z } from "zod";
import { NOTIFY_PART_COUNTS } from "../../contracts/notify-parts.js";
import { SECOND } from "../../kernel/time.js";
import { databaseUrl, natsUrls, redisUrls } from "../../kernel/urls.js";
import { type ConfigOf, factor, flag, integer, target, text, type Variables } from "../../kernel/variables.js";
import { COMMAND_TIMEOUT_MS } from "../../platform/redis/connect.js";
import { tlsFolder } from "../../platform/tls.js";

export const REDIS_VARIABLES = {
  urls: {
    name: "REDIS_URL",
    schema: redisUrls,
    default: "redis://127.0.0.1:6379",
    about:
      "Redis, as redis://user:password@host:port/database; rediss:// for TLS; a comma list names nodes of a Redis Cluster, semicolons separate [several Clusters](procedures.md#several-redis-clusters); [with Redis Sentinel](procedures.md#redis-sentinel) redis+sentinel://user:password@host:port,host:port/name/database",
  },
  tls: {
    name: "TIMELINE_REDIS_TLS",
    former: { ca: "TIMELINE_REDIS_TLS_CA" },
    schema: tlsFolder,
    default: "",
    about:
      "Folder with ca.crt for Redis; with tls.crt and tls.key, if it asks for a certificate. Needs TLS in REDIS_URL",
  },
  channelPrefix: {
    name: "TIMELINE_CHANNEL_PREFIX",
    schema: z.string().regex(/^[\w.:-]{0,64}$/, { message: "must have letters, digits and _ . : - only, 64 at most" }),
    default: "",
    about:
      "Begins the names of the Pub/Sub channels, as staging: of staging:drop_created; every database of a Redis has the same channels",
  },
  allowEviction: {
    name: "TIMELINE_REDIS_ALLOW_EVICTION",
    schema: flag,
    default: "false",
    about: "true: start with a warning although Redis may evict keys",
  },
} as const satisfies Variables;

/**
 * A worker signals every third of ack_wait that it is still at work; one that stops may have sent a write just before
 * its next signal was due. Redis refuses a write COMMAND_TIMEOUT_MS after it was sent: two thirds of ack_wait must be
 * longer than that, and half a second for clocks. Otherwise the write could land after another worker had handled the
 * same message and the deletion behind it.
 */
const ACK_WAIT_MIN_MS = 1.5 * COMMAND_TIMEOUT_MS + SECOND / 2;

export const NATS_VARIABLES = {
  servers: {
    name: "NATS_URL",
    schema: natsUrls,
    default: "nats://127.0.0.1:4222",
    about:
      "NATS servers (comma list), as nats://user:password@host:port or nats://token@host:port; tls:// requires TLS",
  },
  credsFile: { name: "TIMELINE_NATS_CREDS", schema: text, about: "Credentials file for NATS" },
  tls: {
    name: "TIMELINE_NATS_TLS",
    former: { ca: "TIMELINE_NATS_TLS_CA", cert: "TIMELINE_NATS_TLS_CERT", key: "TIMELINE_NATS_TLS_KEY" },
    schema: tlsFolder,
    default: "",
    about: "Folder with ca.crt for NATS; with tls.crt and tls.key, if it asks for a certificate",
  },
  tlsFirst: {
    name: "TIMELINE_NATS_TLS_FIRST",
    schema: flag,
    default: "false",
    about: "true: NATS begins with TLS (handshake_first), without a greeting; needs tls:// in NATS_URL",
  },
  replicas: {
    name: "TIMELINE_NATS_REPLICAS",
    schema: integer(1, 5),
    default: "1",
    about: "Replicas of the streams",
  },
  storageScale: {
    name: "TIMELINE_NATS_STORAGE_SCALE",
    schema: factor(1_000),
    default: "1",
    about: "Multiplies max_bytes of every stream in nats/streams",
  },
  notifyParts: {
    name: "TIMELINE_NOTIFY_PARTS",
    schema: z.literal(NOTIFY_PART_COUNTS.map(String), { error: "must be 1 to 16, 32 or 64" }).transform(Number),
    default: "1",
    about: "Streams that share the notifications: 1 to 16, 32 or 64; the same for all processes",
  },
  ackWaitMs: {
    name: "TIMELINE_ACK_WAIT_MS",
    schema: integer(ACK_WAIT_MIN_MS, 600_000),
    default: "15000",
    about: "Time after which messages of a dead process are redelivered, ms; 3500 or more",
  },
} as const satisfies Variables;

export const UPSTREAM_VARIABLES = {
  userServiceAddr: {
    name: "TIMELINE_USER_SERVICE_ADDR",
    schema: target,
    about: "UserService; unset: this process, where it has the role users",
  },
  postServiceAddr: {
    name: "TIMELINE_POST_SERVICE_ADDR",
    schema: target,
    about: "PostService; unset: this process, where it has the role posts",
  },
  timelineServiceAddr: {
    name: "TIMELINE_API_ADDR",
    schema: target,
    about:
      "TimelineService, whose pages the role gateway serves over HTTP; unset: this process, where it has the role api, else no pages",
  },
  notificationServiceAddr: {
    name: "TIMELINE_NOTIFICATION_SERVICE_ADDR",
    schema: target,
    about:
      "NotificationService, which the role gateway serves over HTTP; unset: this process, where it has the role notifications, else no notifications",
  },
  tls: {
    name: "TIMELINE_UPSTREAM_TLS",
    former: { ca: "TIMELINE_UPSTREAM_TLS_CA", cert: "TIMELINE_UPSTREAM_TLS_CERT", key: "TIMELINE_UPSTREAM_TLS_KEY" },
    schema: tlsFolder,
    default: "",
    about:
      "Folder with ca.crt for UserService, PostService, TimelineService and NotificationService; with tls.crt and tls.key, if they ask for a certificate",
  },
} as const satisfies Variables;

export const DATABASE_VARIABLES = {
  url: {
    name: "DATABASE_URL",
    schema: databaseUrl,
    about: "PostgreSQL 15 or newer; unset: embedded PGlite in TIMELINE_DATA_DIR, for one process",
  },
  tls: {
    name: "TIMELINE_DATABASE_TLS",
    former: { ca: "TIMELINE_DATABASE_TLS_CA" },
    schema: tlsFolder,
    default: "",
    about:
      "Folder with ca.crt for PostgreSQL; with tls.crt and tls.key, if it asks for a certificate. As sslrootcert, sslcert and sslkey in DATABASE_URL",
  },
  dataDir: {
    name: "TIMELINE_DATA_DIR",
    schema: text,
    default: "avion-data",
    about: "Folder of the embedded database",
  },
  poolSize: {
    name: "TIMELINE_DATABASE_POOL_SIZE",
    schema: integer(1, 1_000),
    default: "10",
    about: "Connections of a process to PostgreSQL",
  },
} as const satisfies Variables;

export type RedisConfig = ConfigOf<typeof REDIS_VARIABLES>;
export type NatsConfig = ConfigOf<typeof NATS_VARIABLES>;
export type UpstreamsConfig = ConfigOf<typeof UPSTREAM_VARIABLES>;
export type DatabaseConfig = ConfigOf<typeof DATABASE_VARIABLES>;
