import { accessSync, constants } from "node:fs";
import { z } from "zod";
import { parseFailpoints } from "../kernel/failpoints.js";
import { DAY, SECOND } from "../kernel/time.js";
import { LOG_LEVELS } from "../platform/logger.js";
import { suggestion } from "./suggestion.js";

/** Roles a process can take; any number of each may run. */
export const ROLES = ["bridge", "fanout", "api", "gateway"] as const;
export type Role = (typeof ROLES)[number];

const DEFAULT_ROLES = ROLES.join(",");

const list = z.string().transform((text) =>
  text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== ""),
);
const nonEmptyList = list.refine((parts) => parts.length > 0, { message: "must not be empty" });
const urls = (...protocols: string[]) =>
  nonEmptyList.superRefine((parts, context) => {
    for (const part of parts) {
      if (!URL.canParse(part) || !protocols.includes(new URL(part).protocol)) {
        context.addIssue({
          code: "custom",
          message: `"${part}" is not a URL of ${protocols.map((name) => `${name}//`).join(" or ")}`,
        });
      }
    }
  });
const hasPort = (value: string): boolean => Number(value.slice(value.lastIndexOf(":") + 1)) <= 65_535;
const portRule = { message: "must have a port up to 65535" };
const address = z
  .string()
  .regex(/^(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}$/, { message: "must be host:port" })
  .refine(hasPort, portRule);
const target = z
  .string()
  .regex(/^(dns:\/\/\/)?(\[[0-9a-fA-F:]+\]|[^:/\s]+):\d{1,5}$/, { message: "must be host:port or dns:///host:port" })
  .refine(hasPort, portRule);
const integer = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d+$/, { message: "must be a whole number" })
    .transform(Number)
    .refine((value) => value >= min && value <= max, { message: `must be between ${min} and ${max}` });
const text = z.string().min(1, { message: "must not be empty" });

const failpoints = text.transform((value, context) => {
  try {
    return parseFailpoints(value);
  } catch (error) {
    context.addIssue({ code: "custom", message: (error as Error).message });
    return z.NEVER;
  }
});

/**
 * Every variable the service knows, with its meaning; what docs and checks
 * read. Defaults are written as the variable would be.
 */
export const VARIABLES = {
  REDIS_URL: {
    schema: urls("redis:", "rediss:"),
    default: "redis://127.0.0.1:6379",
    about: "Redis; several URLs (comma): the nodes of a Redis Cluster",
  },
  NATS_URL: { schema: urls("nats:", "tls:"), default: "nats://127.0.0.1:4222", about: "NATS servers (comma list)" },
  TIMELINE_ROLES: {
    schema: nonEmptyList.pipe(z.array(z.enum(ROLES, { message: `must be of ${DEFAULT_ROLES}` }))),
    default: DEFAULT_ROLES,
    about: "Roles of this process",
  },
  TIMELINE_GRPC_ADDR: { schema: address, default: "0.0.0.0:50051", about: "Where gRPC is served" },
  TIMELINE_HTTP_ADDR: {
    schema: address,
    default: "0.0.0.0:8080",
    about: "Where HTTP is served: SSE, /healthz, /readyz, /metrics",
  },
  TIMELINE_USER_SERVICE_ADDR: { schema: target, about: "UserService (roles fanout, api)" },
  TIMELINE_POST_SERVICE_ADDR: { schema: target, about: "PostService (roles fanout, api)" },
  TIMELINE_JWT_SECRET: {
    schema: text,
    about: "Secret of HS256 tokens; 32 bytes or more, by RFC 7518 (role gateway; this or TIMELINE_JWT_JWKS_URL)",
  },
  TIMELINE_JWT_JWKS_URL: {
    schema: urls("https:", "http:").transform((parts) => parts[0] as string),
    about: "Key set of asymmetric tokens (role gateway; this or TIMELINE_JWT_SECRET)",
  },
  TIMELINE_JWT_ISSUER: { schema: text, about: "Required iss of tokens; unset: not checked" },
  TIMELINE_JWT_AUDIENCE: { schema: text, about: "Required aud of tokens; unset: not checked" },
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
  TIMELINE_FANOUT_AUDIENCE: {
    schema: z.enum(["all", "active"]),
    default: "all",
    about: "Write to every follower, or only where a timeline was read since it was last lost",
  },
  TIMELINE_FANOUT_CHUNK_SIZE: {
    schema: integer(1, 5_000),
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
    schema: integer(500, 600_000),
    default: "15000",
    about: "After this long what a dead process had in hand is handed out again, ms (below 3500 for tests only)",
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
  TIMELINE_SSE_MAX_CONNECTIONS: { schema: integer(1, 1_000_000), default: "50000", about: "Streams of this process" },
  TIMELINE_SSE_MAX_CONNECTIONS_PER_USER: {
    schema: integer(1, 1_000),
    default: "20",
    about: "Streams of one user on this process",
  },
  TIMELINE_NATS_REPLICAS: { schema: integer(1, 5), default: "1", about: "Replicas of our streams" },
  TIMELINE_NATS_CREDS: { schema: text, about: "Credentials file for NATS" },
  TIMELINE_NATS_TLS_CA: { schema: text, about: "CA file for NATS" },
  TIMELINE_NATS_TLS_CERT: { schema: text, about: "Client certificate file for NATS" },
  TIMELINE_NATS_TLS_KEY: { schema: text, about: "Client key file for NATS" },
  TIMELINE_GRPC_TLS_CA: { schema: text, about: "CA file: clients of our gRPC must show a certificate of it" },
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

type Variables = typeof VARIABLES;
type VariableName = keyof Variables;
/** The value of each variable; undefined where it is unset and has no default. */
export type Config = {
  readonly [Name in VariableName]:
    | z.output<Variables[Name]["schema"]>
    | (Variables[Name] extends { default: string } ? never : undefined);
};

/** Bad configuration: every fault of it. */
export class ConfigError extends Error {
  constructor(readonly faults: readonly string[]) {
    super(`bad configuration:\n${faults.map((fault) => `  - ${fault}`).join("\n")}`);
  }
}

/**
 * Reads the environment once; an empty variable counts as unset.
 *
 * @throws ConfigError with all faults at once
 */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  const faults: string[] = [];
  const known = new Set<string>(Object.keys(VARIABLES));
  for (const name of Object.keys(env)) {
    if (name.startsWith("TIMELINE_") && !known.has(name))
      faults.push(`${name}: is not a variable of this service${suggestion(name, known)}`);
  }
  const values: Record<string, unknown> = {};
  for (const [name, variable] of Object.entries(VARIABLES)) {
    const given = env[name] || ("default" in variable ? variable.default : undefined);
    if (given === undefined) continue;
    const parsed = variable.schema.safeParse(given);
    if (parsed.success) values[name] = parsed.data;
    else faults.push(...parsed.error.issues.map((issue) => `${name}: ${issue.message}`));
  }
  const config = values as Config;
  faults.push(...missing(config, env));
  if (faults.length > 0) throw new ConfigError(faults);
  return Object.freeze(config);
}

/** What the roles need and is not there. */
function missing(config: Config, env: NodeJS.ProcessEnv): string[] {
  const roles: readonly Role[] = config.TIMELINE_ROLES ?? [];
  const faults: string[] = [];
  if (roles.includes("fanout") || roles.includes("api")) {
    for (const name of ["TIMELINE_USER_SERVICE_ADDR", "TIMELINE_POST_SERVICE_ADDR"] as const) {
      if (!env[name]) faults.push(`${name}: is needed by the roles fanout and api`);
    }
  }
  if (roles.includes("gateway") && !env["TIMELINE_JWT_SECRET"] && !env["TIMELINE_JWT_JWKS_URL"]) {
    faults.push("TIMELINE_JWT_SECRET: it or TIMELINE_JWT_JWKS_URL is needed by the role gateway");
  }
  if (env["TIMELINE_JWT_SECRET"] && env["TIMELINE_JWT_JWKS_URL"]) {
    faults.push("TIMELINE_JWT_SECRET: excludes TIMELINE_JWT_JWKS_URL");
  }
  for (const channel of ["GRPC", "NATS", "UPSTREAM"] as const) {
    const [cert, key] = [`TIMELINE_${channel}_TLS_CERT`, `TIMELINE_${channel}_TLS_KEY`] as const;
    if ((config[cert] === undefined) !== (config[key] === undefined)) faults.push(`${cert}: goes together with ${key}`);
  }
  return faults;
}

const FILES = (Object.keys(VARIABLES) as VariableName[]).filter((name) => /_TLS_(CA|CERT|KEY)$|_CREDS$/.test(name));

/** @throws ConfigError naming every file that is configured and cannot be read. */
export function checkFiles(config: Config): void {
  const faults = FILES.flatMap((name) => {
    const file = config[name] as string | undefined;
    if (file === undefined) return [];
    try {
      accessSync(file, constants.R_OK);
      return [];
    } catch (error) {
      return [`${name}: cannot be read (${(error as NodeJS.ErrnoException).code}: ${file})`];
    }
  });
  if (faults.length > 0) throw new ConfigError(faults);
}
