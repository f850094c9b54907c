import { accessSync, constants, readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import type { z } from "zod";
import { oneLine } from "../../kernel/errors.js";
import { parseServerUrl } from "../../kernel/server-url.js";
import { suggestion } from "./suggestion.js";
import { type Role, VARIABLES } from "./variables.js";

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
  const config = { ...values, ...ownAddresses(values as Config) } as Config;
  faults.push(...missing(config, env));
  if (faults.length > 0) throw new ConfigError(faults);
  return Object.freeze(config);
}

const ADDRESS_OF_ROLE = { TIMELINE_USER_SERVICE_ADDR: "users", TIMELINE_POST_SERVICE_ADDR: "posts" } as const;

/** Where this process serves an upstream itself, that is the one its other roles call. */
function ownAddresses(config: Config): Partial<Config> {
  const [, host = "", port = "0"] = /^(.*):(\d+)$/.exec(config.TIMELINE_GRPC_ADDR ?? "") ?? [];
  if (port === "0") return {};
  const own = `${host === "0.0.0.0" || host === "[::]" ? "127.0.0.1" : host}:${port}`;
  const names = Object.keys(ADDRESS_OF_ROLE) as (keyof typeof ADDRESS_OF_ROLE)[];
  const served = names.filter((name) => !config[name] && config.TIMELINE_ROLES?.includes(ADDRESS_OF_ROLE[name]));
  return Object.fromEntries(served.map((name) => [name, own]));
}

/** What the roles need and is not there. */
function missing(config: Config, env: NodeJS.ProcessEnv): string[] {
  const roles: readonly Role[] = config.TIMELINE_ROLES ?? [];
  const faults: string[] = [];
  if (roles.includes("fanout") || roles.includes("api")) {
    for (const [name, role] of Object.entries(ADDRESS_OF_ROLE)) {
      if (config[name as keyof typeof ADDRESS_OF_ROLE] === undefined)
        faults.push(`${name}: is needed by the roles fanout and api, unless the role ${role} runs in this process`);
    }
  }
  faults.push(...tokenFaults(config), ...channelFaults(config));
  if (roles.includes("gateway") && !env["TIMELINE_JWT_SECRET"] && !env["TIMELINE_JWT_JWKS_URL"]) {
    faults.push("TIMELINE_JWT_SECRET: it or TIMELINE_JWT_JWKS_URL is needed by the role gateway");
  }
  if (env["TIMELINE_JWT_SECRET"] && env["TIMELINE_JWT_JWKS_URL"]) {
    faults.push("TIMELINE_JWT_SECRET: excludes TIMELINE_JWT_JWKS_URL");
  }
  return faults;
}

/** A key shorter than the hash is weaker than it (RFC 7518, section 3.2). */
const MIN_SECRET_BYTES = 32;

/** Ways to check tokens by which other people's would pass. */
function tokenFaults(config: Config): string[] {
  const { TIMELINE_JWT_SECRET: secret, TIMELINE_JWT_JWKS_URL: keys } = config;
  if (config.TIMELINE_JWT_ALLOW_UNSAFE) return [];
  const faults: string[] = [];
  if (secret !== undefined && Buffer.byteLength(secret) < MIN_SECRET_BYTES)
    faults.push(`TIMELINE_JWT_SECRET: is shorter than ${MIN_SECRET_BYTES} bytes`);
  if (keys !== undefined && new URL(keys).protocol !== "https:")
    faults.push("TIMELINE_JWT_JWKS_URL: must be https:, or whoever is on the way can replace the keys");
  for (const name of ["TIMELINE_JWT_ISSUER", "TIMELINE_JWT_AUDIENCE"] as const) {
    if (keys !== undefined && config[name] === undefined)
      faults.push(`${name}: is needed with TIMELINE_JWT_JWKS_URL: the same keys sign tokens for other services`);
  }
  return faults.map((fault) => `${fault} (TIMELINE_JWT_ALLOW_UNSAFE=true allows it)`);
}

const CHANNELS = ["GRPC", "NATS", "UPSTREAM"] as const;

/** Settings of TLS and credentials that could not all be obeyed. */
function channelFaults(config: Config): string[] {
  const faults: string[] = [];
  for (const channel of CHANNELS) {
    const [cert, key] = [`TIMELINE_${channel}_TLS_CERT`, `TIMELINE_${channel}_TLS_KEY`] as const;
    if ((config[cert] === undefined) !== (config[key] === undefined)) faults.push(`${cert}: goes together with ${key}`);
  }
  if (config.TIMELINE_GRPC_TLS_CA !== undefined && !config.TIMELINE_GRPC_TLS_CERT && !config.TIMELINE_GRPC_TLS_KEY)
    faults.push(
      "TIMELINE_GRPC_TLS_CA: needs TIMELINE_GRPC_TLS_CERT and TIMELINE_GRPC_TLS_KEY: without them gRPC has no TLS",
    );
  if (config.TIMELINE_NATS_CREDS !== undefined && config.NATS_URL?.some((url) => parseServerUrl(url).user !== ""))
    faults.push("TIMELINE_NATS_CREDS: excludes a user or token in NATS_URL");
  return faults;
}

const FILES = (Object.keys(VARIABLES) as VariableName[]).filter((name) => /_TLS_(CA|CERT|KEY)$|_CREDS$/.test(name));

/** @throws ConfigError naming every file that is configured and cannot be read, or holds no such thing. */
export function checkFiles(config: Config): void {
  const faults = [
    ...FILES.flatMap((name) => readFault(name, config[name] as string | undefined)),
    ...filesOfDatabase(config).flatMap(([parameter, file]) => readFault(`DATABASE_URL: ${parameter}`, file)),
  ];
  if (faults.length === 0) faults.push(...CHANNELS.flatMap((channel) => certificateFault(config, channel)));
  if (faults.length > 0) throw new ConfigError(faults);
}

/** The value is not said: it may be the content that belongs into the file. */
function readFault(name: string, file: string | undefined): string[] {
  if (file === undefined) return [];
  try {
    accessSync(file, constants.R_OK);
    return [];
  } catch (error) {
    return [`${name}: names a file that cannot be read (${(error as NodeJS.ErrnoException).code})`];
  }
}

function filesOfDatabase({ DATABASE_URL: url }: Config): [string, string][] {
  if (url === undefined) return [];
  return [...new URL(url).searchParams].filter(([name]) => /^ssl(cert|key|rootcert)$/.test(name));
}

function certificateFault(config: Config, channel: (typeof CHANNELS)[number]): string[] {
  const read = (part: "CA" | "CERT" | "KEY"): Buffer | undefined => {
    const file = config[`TIMELINE_${channel}_TLS_${part}`];
    return file === undefined ? undefined : readFileSync(file);
  };
  try {
    createSecureContext({ ca: read("CA"), cert: read("CERT"), key: read("KEY") });
    return [];
  } catch (error) {
    return [`TIMELINE_${channel}_TLS_*: no usable certificate and key (${oneLine(error)})`];
  }
}
