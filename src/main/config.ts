import { accessSync, constants } from "node:fs";
import type { z } from "zod";
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
