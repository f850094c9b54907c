import { ANALYSIS_VARIABLES } from "../../analysis/config.js";
import { AUDIT_VARIABLES } from "../../consistency/config.js";
import { STORED_TIMELINES_VARIABLES } from "../../contracts/config.js";
import { DELIVERY_VARIABLES } from "../../delivery/config.js";
import { FANOUT_VARIABLES, thresholdFaults } from "../../fanout/config.js";
import { GATEWAY_VARIABLES, tokenFaults } from "../../gateway/config.js";
import { faultInWords } from "../../kernel/fields.js";
import { databaseOf, parseServerUrl } from "../../kernel/urls.js";
import { ConfigError, type ConfigOf, type Variable, type Variables } from "../../kernel/variables.js";
import { OPS_VARIABLES } from "../../operators/console/config.js";
import { OUTBOX_VARIABLES } from "../../outbox/config.js";
import { proxyFaults } from "../../platform/http/outbound.js";
import { usesTls } from "../../platform/tls.js";
import { POSTS_VARIABLES } from "../../posts/config.js";
import { TIMELINE_VARIABLES } from "../../reads/config.js";
import { otelFaults } from "../../telemetry/otel-variables.js";
import { USERS_VARIABLES } from "../../users/config.js";
import { DATABASE_VARIABLES, NATS_VARIABLES, REDIS_VARIABLES, UPSTREAM_VARIABLES } from "./connections.js";
import { formerValue, nameFaults, nameWarnings, usedFormerNames } from "./names.js";
import { GRPC_SERVER_VARIABLES, PROCESS_VARIABLES, type Role } from "./process.js";

/** Each component has one slice; the process and its connections have others. */
export const SLICES = {
  process: PROCESS_VARIABLES,
  grpcServer: GRPC_SERVER_VARIABLES,
  redis: REDIS_VARIABLES,
  nats: NATS_VARIABLES,
  upstreams: UPSTREAM_VARIABLES,
  database: DATABASE_VARIABLES,
  delivery: DELIVERY_VARIABLES,
  storedTimelines: STORED_TIMELINES_VARIABLES,
  fanout: FANOUT_VARIABLES,
  timeline: TIMELINE_VARIABLES,
  gateway: GATEWAY_VARIABLES,
  audit: AUDIT_VARIABLES,
  users: USERS_VARIABLES,
  posts: POSTS_VARIABLES,
  outbox: OUTBOX_VARIABLES,
  analysis: ANALYSIS_VARIABLES,
  ops: OPS_VARIABLES,
} as const;

export type Config = { readonly [Slice in keyof typeof SLICES]: ConfigOf<(typeof SLICES)[Slice]> };

export const VARIABLES: readonly Variable[] = Object.values(SLICES).flatMap((slice) => Object.values<Variable>(slice));

/**
 * Reads the environment of a process that serves; an empty variable counts as unset.
 *
 * @throws ConfigError with all faults at once
 */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  const { config: given, faults } = read(env);
  const config = withOwnAddresses(given);
  return frozen(config, [
    ...faults,
    ...addressFaults(config),
    ...keyFaults(config, env),
    ...outboundFaults(config, env),
    ...otelFaults(env),
  ]);
}

/**
 * Reads the environment of a command, which runs no role and so needs nothing that only roles need.
 *
 * @throws ConfigError with all faults at once
 */
export function readCommandConfig(env: NodeJS.ProcessEnv): Config {
  const { config, faults } = read(env);
  return frozen(config, faults);
}

/** Returns what an operator must change before the next version. */
export const configWarnings = (env: NodeJS.ProcessEnv): string[] => nameWarnings(VARIABLES, env);

/** Redis Pub/Sub has no databases. Every process that uses the channels returns the same. */
export function channelWarning({ process, outbox, redis }: Config): string | undefined {
  const database = databaseOf(redis.urls);
  const uses = process.roles.includes("bridge") || outbox.relayChannels;
  if (!uses || database === 0 || redis.channelPrefix !== "") return undefined;
  return (
    `REDIS_URL names database ${database}, and TIMELINE_CHANNEL_PREFIX is not set: ` +
    "the channels are those of all databases of that Redis"
  );
}

function read(env: NodeJS.ProcessEnv): { config: Config; faults: string[] } {
  const faults = nameFaults(VARIABLES, env);
  const slices = Object.entries<Variables>(SLICES).map(([slice, variables]) => [
    slice,
    readSlice(variables, env, faults),
  ]);
  const config = withTlsFiles(Object.fromEntries(slices) as Config, faults);
  const { fanout, gateway } = config;
  return { config, faults: [...faults, ...thresholdFaults(fanout), ...tokenFaults(gateway), ...channelFaults(config)] };
}

function frozen(config: Config, faults: readonly string[]): Config {
  if (faults.length > 0) throw new ConfigError(faults);
  for (const slice of Object.values(config)) Object.freeze(slice);
  return Object.freeze(config);
}

function readSlice(variables: Variables, env: NodeJS.ProcessEnv, faults: string[]): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const [key, variable] of Object.entries(variables)) {
    const given = env[variable.name] || (formerValue(variable, env) ?? variable.default);
    if (given === undefined) continue;
    const parsed = variable.schema.safeParse(given, { error: faultInWords });
    if (parsed.success) values[key] = parsed.data;
    else {
      const [name] = env[variable.name] ? [variable.name] : [...usedFormerNames(variable, env), variable.name];
      faults.push(...parsed.error.issues.map((issue) => `${name}: ${issue.message}`));
    }
  }
  return values;
}

/** Adds the files of TLS to the URLs, from which clients read them. No REDIS_URL may name them itself. */
function withTlsFiles(config: Config, faults: string[]): Config {
  const { redis, database } = config;
  if (usesTls(redis.tls) && redis.urls?.some((url) => !url.startsWith("rediss")))
    faults.push("TIMELINE_REDIS_TLS: needs rediss:// or rediss+sentinel:// in REDIS_URL: without it Redis has no TLS");
  const urls = redis.urls?.map((url) => withParameters(url, { ...redis.tls }));
  return { ...config, redis: { ...redis, urls }, database: { ...database, url: databaseUrl(database, faults) } };
}

function databaseUrl({ url, tls }: Config["database"], faults: string[]): string | undefined {
  if (!usesTls(tls) || url === undefined) return url;
  const parameters = { sslrootcert: tls.ca, sslcert: tls.cert, sslkey: tls.key };
  const { searchParams } = new URL(url);
  for (const [name, file] of Object.entries(parameters))
    if (file && searchParams.has(name)) faults.push(`TIMELINE_DATABASE_TLS: excludes ${name} in DATABASE_URL`);
  if (["disable", "no-verify"].includes(searchParams.get("sslmode") ?? ""))
    faults.push("TIMELINE_DATABASE_TLS: excludes an sslmode in DATABASE_URL that verifies no certificate");
  return withParameters(url, parameters);
}

function withParameters(url: string, parameters: Readonly<Record<string, string | undefined>>): string {
  const given = Object.entries(parameters).flatMap(([name, value]) =>
    value === undefined ? [] : `${name}=${encodeURIComponent(value)}`,
  );
  return given.length === 0 ? url : `${url}${url.includes("?") ? "&" : "?"}${given.join("&")}`;
}

const OWN_ADDRESSES = {
  userServiceAddr: "users",
  postServiceAddr: "posts",
  timelineServiceAddr: "api",
  notificationServiceAddr: "notifications",
} as const;

/** Returns the address of the process's own gRPC, or undefined if the port is not known yet. */
export function ownGrpcAddress({ grpcServer }: Pick<Config, "grpcServer">): string | undefined {
  const [, host = "", port = "0"] = /^(.*):(\d+)$/.exec(grpcServer.address ?? "") ?? [];
  if (port === "0") return undefined;
  return `${host === "0.0.0.0" || host === "[::]" ? "127.0.0.1" : host}:${port}`;
}

/** A process that serves an upstream itself calls that one. */
function withOwnAddresses(config: Config): Config {
  const { process, upstreams } = config;
  const address = ownGrpcAddress(config);
  if (address === undefined) return config;
  const served = Object.entries(OWN_ADDRESSES).filter(([, role]) => process.roles?.includes(role));
  return { ...config, upstreams: { ...Object.fromEntries(served.map(([key]) => [key, address])), ...upstreams } };
}

const CALLERS: Readonly<Record<keyof typeof OWN_ADDRESSES, readonly Role[]>> = {
  userServiceAddr: ["fanout", "api", "ops"],
  postServiceAddr: ["fanout", "api", "analysis", "ops"],
  timelineServiceAddr: [],
  notificationServiceAddr: [],
};

/** The upstreams that roles of this process call, also those that some of them do without. */
export function calledUpstreams({ process: { roles }, upstreams }: Pick<Config, "process" | "upstreams">) {
  const calledBy = (callers: readonly Role[]): boolean => callers.some((caller) => roles.includes(caller));
  const users =
    calledBy([...CALLERS.userServiceAddr, "posts", "analysis", "notifications", "gateway"]) &&
    upstreams.userServiceAddr;
  const posts = calledBy([...CALLERS.postServiceAddr, "gateway"]) && upstreams.postServiceAddr;
  const timelines = calledBy(["gateway"]) && upstreams.timelineServiceAddr;
  const notifications = calledBy(["gateway"]) && upstreams.notificationServiceAddr;
  return [
    ...(users ? [{ name: "UserService", address: users }] : []),
    ...(posts ? [{ name: "PostService", address: posts }] : []),
    ...(timelines ? [{ name: "TimelineService", address: timelines }] : []),
    ...(notifications ? [{ name: "NotificationService", address: notifications }] : []),
  ];
}

function addressFaults({ process, upstreams }: Config): string[] {
  return Object.entries(OWN_ADDRESSES).flatMap(([key, role]) => {
    const address = key as keyof typeof OWN_ADDRESSES;
    const callers = CALLERS[address].filter((caller) => process.roles?.includes(caller));
    if (callers.length === 0 || upstreams[address] !== undefined) return [];
    const { name } = UPSTREAM_VARIABLES[address];
    return `${name}: must be set for ${callers.join(" and ")}, unless the role ${role} runs in this process`;
  });
}

/** Roles that check tokens. */
const CHECKING: readonly Role[] = ["gateway", "ops"];

function keyFaults({ process }: Config, env: NodeJS.ProcessEnv): string[] {
  const given = env["TIMELINE_JWT_SECRET"] || env["TIMELINE_JWT_JWKS_URL"];
  const checking = CHECKING.filter((role) => process.roles?.includes(role));
  if (given || checking.length === 0) return [];
  return [`TIMELINE_JWT_SECRET: the role ${checking.join(" and ")} needs it, or TIMELINE_JWT_JWKS_URL`];
}

/** Only these roles ask servers of others. */
const outboundFaults = ({ process: { roles }, gateway }: Config, env: NodeJS.ProcessEnv): string[] =>
  roles?.includes("analysis") || (CHECKING.some((role) => roles?.includes(role)) && gateway.jwksUrl !== undefined)
    ? proxyFaults(env)
    : [];

/** Reports settings of TLS and credentials that exclude each other. */
function channelFaults({ grpcServer, nats }: Config): string[] {
  const faults: string[] = [];
  if (grpcServer.tls?.ca && !grpcServer.tls.cert)
    faults.push("TIMELINE_GRPC_TLS: needs tls.crt and tls.key: without them gRPC has no TLS");
  if (nats.tlsFirst && nats.servers?.some((url) => parseServerUrl(url).protocol !== "tls:"))
    faults.push("TIMELINE_NATS_TLS_FIRST: needs tls:// in NATS_URL");
  if (nats.credsFile !== undefined && nats.servers?.some((url) => parseServerUrl(url).user !== ""))
    faults.push("TIMELINE_NATS_CREDS: excludes a user or token in NATS_URL");
  return faults;
}
