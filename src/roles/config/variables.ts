import { z } from "zod";
import { MAX_CHUNK_USERS } from "../../contracts/jobs.js";
import { DAY, SECOND } from "../../kernel/time.js";
import { LOG_LEVELS } from "../../platform/logger.js";
import { COMMAND_TIMEOUT_MS } from "../../platform/redis/connect.js";
import { READ_VARIABLES } from "./read-variables.js";
import { address, factor, failpoints, flag, integer, list, nonEmptyList, target, text } from "./schemas.js";
import { databaseUrl, natsUrls, redisUrls, webUrl } from "./url-schemas.js";

/** Roles a process can take; any number of each may run. */
export const ROLES = ["bridge", "fanout", "api", "gateway", "users", "posts"] as const;
export type Role = (typeof ROLES)[number];

const DEFAULT_ROLES = "bridge,fanout,api,gateway";

/**
 * A worker signals at every third of ack_wait that it is still at work, and one that stops may have sent a write
 * just before it would have signalled again. Redis refuses a write COMMAND_TIMEOUT_MS after it was sent: two thirds of
 * ack_wait must be longer than that, and by half a second for clocks. Otherwise it could land after another worker
 * had the message, did it, and saw its drop deleted.
 */
const ACK_WAIT_MIN_MS = 1.5 * COMMAND_TIMEOUT_MS + SECOND / 2;

/**
 * Every variable the service knows, with its meaning; what docs and checks
 * read. Defaults are written as the variable would be.
 */
export const VARIABLES = {
  REDIS_URL: {
    schema: redisUrls,
    default: "redis://127.0.0.1:6379",
    about:
      "Redis, as redis://user:password@host:port/database; rediss:// for TLS; several URLs (comma): the nodes of a Redis Cluster",
  },
  TIMELINE_REDIS_ALLOW_EVICTION: {
    schema: flag,
    default: "false",
    about: "`true`: Redis may evict keys, and each start warns of it; `false`: that refuses the start",
  },
  NATS_URL: {
    schema: natsUrls,
    default: "nats://127.0.0.1:4222",
    about:
      "NATS servers (comma list), as nats://user:password@host:port or nats://token@host:port; tls:// requires TLS",
  },
  DATABASE_URL: {
    schema: databaseUrl,
    about: "PostgreSQL 15 or newer (roles users, posts); unset: embedded PGlite in TIMELINE_DATA_DIR, for one process",
  },
  TIMELINE_ROLES: {
    schema: nonEmptyList.pipe(z.array(z.enum(ROLES, { message: `must be of ${ROLES.join(",")}` }))),
    default: DEFAULT_ROLES,
    about: "Roles of this process",
  },
  TIMELINE_GRPC_ADDR: { schema: address, default: "0.0.0.0:50051", about: "Where gRPC is served" },
  TIMELINE_HTTP_ADDR: {
    schema: address,
    default: "0.0.0.0:8080",
    about: "Where HTTP is served: SSE, /healthz, /readyz, /metrics",
  },
  TIMELINE_USER_SERVICE_ADDR: {
    schema: target,
    about: "UserService (roles fanout, api, posts); unset: this process, where it has the role users",
  },
  TIMELINE_POST_SERVICE_ADDR: {
    schema: target,
    about: "PostService (roles fanout, api); unset: this process, where it has the role posts",
  },
  TIMELINE_JWT_SECRET: {
    schema: text,
    about: "Secret of HS256 tokens; 32 bytes or more, by RFC 7518 (role gateway; this or TIMELINE_JWT_JWKS_URL)",
  },
  TIMELINE_JWT_JWKS_URL: {
    schema: webUrl,
    about:
      "Key set of asymmetric tokens, over https: (role gateway; this or TIMELINE_JWT_SECRET); needs issuer and audience",
  },
  TIMELINE_JWT_ISSUER: {
    schema: text,
    about: "Required iss of tokens; unset: not checked (only with TIMELINE_JWT_SECRET)",
  },
  TIMELINE_JWT_AUDIENCE: {
    schema: text,
    about: "Required aud of tokens; unset: not checked (only with TIMELINE_JWT_SECRET)",
  },
  TIMELINE_JWT_ALLOW_UNSAFE: {
    schema: flag,
    default: "false",
    about:
      "Allows a secret under 32 bytes, a key set over http:, and one without TIMELINE_JWT_ISSUER and TIMELINE_JWT_AUDIENCE; true or false",
  },
  TIMELINE_ALLOWED_ORIGINS: {
    schema: list,
    default: "",
    about: "Origins (comma list) whose pages may open streams with cookies",
  },
  TIMELINE_MAX_ENTRIES: {
    schema: integer(10, 100_000),
    default: "1000",
    about: "Drops a stored timeline holds at most",
  },
  TIMELINE_KEY_TTL_MS: {
    schema: integer(60 * SECOND, 365 * DAY),
    default: String(30 * DAY),
    about: "Time to live of a home timeline nobody reads, ms",
  },
  ...READ_VARIABLES,
  TIMELINE_FANOUT_AUDIENCE: {
    schema: z.enum(["all", "active"]),
    default: "all",
    about: "Write to every follower, or only where a timeline was read since it was last lost",
  },
  TIMELINE_FANOUT_CHUNK_SIZE: {
    schema: integer(1, MAX_CHUNK_USERS),
    default: "1000",
    about: "Followers a page, and so a chunk job",
  },
  TIMELINE_FANOUT_PULL_THRESHOLD: {
    schema: integer(1, 1_000_000_000),
    default: "100000",
    about: "Followers above which an author is to be pulled (reserved: everybody is pushed)",
  },
  TIMELINE_FANOUT_MAX_ATTEMPTS: {
    schema: integer(1, 100),
    default: "5",
    about: "Attempts at an event before it is dead-lettered",
  },
  TIMELINE_FANOUT_CONCURRENCY: {
    schema: integer(1, 1_024),
    default: "64",
    about: "Events a consumer of this process handles at once",
  },
  TIMELINE_ACK_WAIT_MS: {
    schema: integer(ACK_WAIT_MIN_MS, 600_000),
    default: "15000",
    about: "After this long what a dead process had in hand is handed out again, ms",
  },
  TIMELINE_RETRY_BASE_MS: {
    schema: integer(1, 60_000),
    default: "500",
    about: "First delay between attempts, ms; doubled each time, with jitter",
  },
  TIMELINE_AUDIT_INTERVAL_MS: {
    schema: integer(0, 7 * DAY),
    default: "600000",
    about: "How often one process of the role fanout compares some timelines with the upstreams, ms; 0: never",
  },
  TIMELINE_AUDIT_USERS: {
    schema: integer(0, 10_000),
    default: "20",
    about: "Home timelines it compares each time",
  },
  TIMELINE_AUDIT_SETTLE_MS: {
    schema: integer(0, 3_600_000),
    default: "30000",
    about: "What is younger than this is not judged by audits, since it may be under way, ms",
  },
  TIMELINE_AUDIT_PUBLICATIONS_PERCENT: {
    schema: integer(0, 100),
    default: "100",
    about: "Share of completed publications and deletions that are looked up in some timelines, percent; 0: none",
  },
  TIMELINE_AUDIT_PUBLICATIONS_DELAY_MS: {
    schema: integer(0, 600_000),
    default: "3000",
    about: "From the last write of a publication until it is looked up, and from there to a second look, ms",
  },
  TIMELINE_AUDIT_PUBLICATIONS_RATE: {
    schema: integer(1, 10_000),
    default: "20",
    about: "Publications a process of the role fanout looks up a second at most; the others are skipped",
  },
  TIMELINE_DATA_DIR: {
    schema: text,
    default: "avion-data",
    about: "Folder of the embedded database (roles users, posts)",
  },
  TIMELINE_DATABASE_POOL_SIZE: {
    schema: integer(1, 1_000),
    default: "10",
    about: "Connections of this process to PostgreSQL, beside the one that listens",
  },
  TIMELINE_RELAY_CHANNELS: {
    schema: flag,
    default: "false",
    about: "Whether drops and follows are announced on the Redis channels too (roles users, posts); true or false",
  },
  TIMELINE_DROP_MAX_CHARACTERS: {
    schema: integer(1, 100_000),
    default: "5000",
    about: "Characters the body of a drop has at most (role posts)",
  },
  TIMELINE_DROPS_RETENTION_DAYS: {
    schema: integer(0, 36_500),
    default: "0",
    about: "Drops older than this are removed, by whole months, days; 0: never (role posts)",
  },
  TIMELINE_DROPS_IMPORT_MAX_AGE_DAYS: {
    schema: integer(1, 7_300),
    default: "3650",
    about: "How long ago a drop that is imported may have been created, days; each month takes partitions (role posts)",
  },
  TIMELINE_MAX_FOLLOWING: {
    schema: integer(1, 1_000_000),
    default: "7500",
    about: "How many people a user can follow (role users)",
  },
  TIMELINE_HOT_USER_RATE: {
    schema: integer(1, 1_000_000),
    default: "200",
    about: "Changes of followers a second beyond which a user's are applied aside from the others (role users)",
  },
  TIMELINE_SSE_MAX_CONNECTIONS: { schema: integer(1, 1_000_000), default: "50000", about: "Streams of this process" },
  TIMELINE_SSE_MAX_CONNECTIONS_PER_USER: {
    schema: integer(1, 1_000),
    default: "20",
    about: "Streams of one user on this process",
  },
  TIMELINE_NATS_STORAGE_SCALE: {
    schema: factor(1_000),
    default: "1",
    about: "Multiplies max_bytes of every stream in nats/streams, e.g. 0.25 on a small disk, 4 for four times the load",
  },
  TIMELINE_NATS_REPLICAS: { schema: integer(1, 5), default: "1", about: "Replicas of our streams" },
  TIMELINE_NATS_CREDS: { schema: text, about: "Credentials file for NATS" },
  TIMELINE_NATS_TLS_CA: { schema: text, about: "CA file for NATS" },
  TIMELINE_NATS_TLS_CERT: { schema: text, about: "Client certificate file for NATS" },
  TIMELINE_NATS_TLS_KEY: { schema: text, about: "Client key file for NATS" },
  TIMELINE_GRPC_TLS_CA: {
    schema: text,
    about: "CA file: clients of our gRPC must show a certificate of it; needs certificate and key",
  },
  TIMELINE_GRPC_TLS_CERT: { schema: text, about: "Certificate file of our gRPC server" },
  TIMELINE_GRPC_TLS_KEY: { schema: text, about: "Key file of our gRPC server" },
  TIMELINE_UPSTREAM_TLS_CA: { schema: text, about: "CA file for UserService and PostService" },
  TIMELINE_UPSTREAM_TLS_CERT: { schema: text, about: "Client certificate file for UserService and PostService" },
  TIMELINE_UPSTREAM_TLS_KEY: { schema: text, about: "Client key file for UserService and PostService" },
  TIMELINE_POD_NAME: { schema: text, about: "Name of this process; unset: host name and pid" },
  TIMELINE_SHUTDOWN_GRACE_MS: {
    schema: integer(0, 600_000),
    default: "20000",
    about: "Time what is in flight has to finish after SIGTERM, ms",
  },
  TIMELINE_LOG_LEVEL: { schema: z.enum(LOG_LEVELS), default: "info", about: `One of ${LOG_LEVELS.join(", ")}` },
  TIMELINE_FAILPOINTS: {
    schema: failpoints,
    about: "For tests: where this process is to die, throw or hang; see src/kernel/failpoints.ts",
  },
  TIMELINE_REDIS_SERVER: {
    schema: text,
    about: "redis-server or valkey-server that up and demo start; unset: from PATH",
  },
  TIMELINE_NATS_SERVER: { schema: text, about: "nats-server that up and demo start; unset: from PATH" },
} as const satisfies Record<string, { schema: z.ZodType; default?: string; about: string }>;
