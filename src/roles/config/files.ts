import { accessSync, constants, readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { oneLine } from "../../kernel/errors.js";
import { ConfigError } from "../../kernel/variables.js";
import type { Config } from "./config.js";

type Connections = Pick<Config, "grpcServer" | "redis" | "nats" | "upstreams" | "database">;

/** @throws ConfigError naming every configured file that cannot be read, or holds no usable certificate */
export function checkFiles(connections: Connections): void {
  const faults = filesOf(connections).flatMap(({ setting, file }) => readFault(setting, file));
  if (faults.length === 0)
    faults.push(...Object.entries(certificatesOf(connections)).flatMap(([name, tls]) => certificateFault(name, tls)));
  if (faults.length > 0) throw new ConfigError(faults);
}

const certificatesOf = ({ grpcServer, nats, upstreams, redis, database }: Connections) => ({
  TIMELINE_GRPC_TLS: grpcServer,
  TIMELINE_NATS_TLS: { ca: nats.caFile, cert: nats.certFile, key: nats.keyFile },
  TIMELINE_UPSTREAM_TLS: upstreams,
  TIMELINE_REDIS_TLS: { ca: redis.caFile, cert: undefined, key: undefined },
  TIMELINE_DATABASE_TLS: { ca: database.caFile, cert: undefined, key: undefined },
});

interface ConfiguredFile {
  readonly setting: string;
  readonly file: string;
}

function filesOf(connections: Connections): ConfiguredFile[] {
  const { url } = connections.database;
  const files: [string, string | undefined][] = [["TIMELINE_NATS_CREDS", connections.nats.credsFile]];
  for (const [name, { ca, cert, key }] of Object.entries(certificatesOf(connections)))
    files.push([`${name}_CA`, ca], [`${name}_CERT`, cert], [`${name}_KEY`, key]);
  for (const [parameter, file] of url === undefined ? [] : new URL(url).searchParams)
    if (/^ssl(cert|key|rootcert)$/.test(parameter)) files.push([`DATABASE_URL: ${parameter}`, file]);
  return files.flatMap(([setting, file]) => (file === undefined ? [] : { setting, file }));
}

export const certificateFiles = (connections: Connections): ConfiguredFile[] =>
  filesOf(connections).filter(({ setting }) => !/(_CREDS|_KEY|sslkey)$/.test(setting));

/** The value is not printed: it may be the content that belongs into the file. */
function readFault(name: string, file: string): string[] {
  try {
    accessSync(file, constants.R_OK);
    return [];
  } catch (error) {
    return [`${name}: names a file that cannot be read (${(error as NodeJS.ErrnoException).code})`];
  }
}

interface TlsFiles {
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
}

function certificateFault(name: string, { ca, cert, key }: TlsFiles): string[] {
  // Node would parse its own list of authorities, three times, if there were no files.
  if (ca === undefined && cert === undefined && key === undefined) return [];
  const read = (file: string | undefined) => (file === undefined ? undefined : readFileSync(file));
  try {
    createSecureContext({ ca: read(ca), cert: read(cert), key: read(key) });
    return [];
  } catch (error) {
    return [`${name}_*: no usable certificate and key (${oneLine(error)})`];
  }
}
