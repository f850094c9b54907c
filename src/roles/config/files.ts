import { accessSync, constants, readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { oneLine } from "../../kernel/errors.js";
import { ConfigError } from "../../kernel/variables.js";
import { TLS_FILES, type TlsFiles, usesTls } from "../../platform/tls.js";
import type { Config } from "./config.js";

type Connections = Pick<Config, "grpcServer" | "redis" | "nats" | "upstreams" | "database">;

/** @throws ConfigError naming every configured file that cannot be read, or holds no usable certificate */
export function checkFiles(connections: Connections): void {
  const faults = filesOf(connections).flatMap(({ setting, file }) => readFault(setting, file));
  if (faults.length === 0)
    faults.push(...Object.entries(tlsOf(connections)).flatMap(([name, tls]) => certificateFault(name, tls)));
  if (faults.length > 0) throw new ConfigError(faults);
}

const tlsOf = ({ grpcServer, nats, upstreams, redis, database }: Connections): Readonly<Record<string, TlsFiles>> => ({
  TIMELINE_GRPC_TLS: grpcServer.tls,
  TIMELINE_NATS_TLS: nats.tls,
  TIMELINE_UPSTREAM_TLS: upstreams.tls,
  TIMELINE_REDIS_TLS: redis.tls,
  TIMELINE_DATABASE_TLS: database.tls,
});

interface ConfiguredFile {
  readonly setting: string;
  readonly file: string;
}

function filesOf(connections: Connections): ConfiguredFile[] {
  const { url, tls } = connections.database;
  const files: [string, string | undefined][] = [["TIMELINE_NATS_CREDS", connections.nats.credsFile]];
  for (const [name, { ca, cert, key }] of Object.entries(tlsOf(connections)))
    files.push([`${name}/${TLS_FILES.ca}`, ca], [`${name}/${TLS_FILES.cert}`, cert], [`${name}/${TLS_FILES.key}`, key]);
  // The configuration adds those of TIMELINE_DATABASE_TLS to the URL.
  for (const [parameter, file] of url === undefined ? [] : new URL(url).searchParams)
    if (/^ssl(cert|key|rootcert)$/.test(parameter) && !Object.values(tls).includes(file))
      files.push([`DATABASE_URL: ${parameter}`, file]);
  return files.flatMap(([setting, file]) => (file === undefined ? [] : { setting, file }));
}

export const certificateFiles = (connections: Connections): ConfiguredFile[] =>
  filesOf(connections).filter(({ setting }) => !/(_CREDS|\.key|sslkey)$/.test(setting));

/** The value is not printed: it may be the content that belongs into the file. */
function readFault(name: string, file: string): string[] {
  try {
    accessSync(file, constants.R_OK);
    return [];
  } catch (error) {
    return [`${name}: names a file that cannot be read (${(error as NodeJS.ErrnoException).code})`];
  }
}

function certificateFault(name: string, tls: TlsFiles): string[] {
  // Node would parse its own list of authorities, three times, if there were no files.
  if (!usesTls(tls)) return [];
  const { ca, cert, key } = tls;
  const read = (file: string | undefined) => (file === undefined ? undefined : readFileSync(file));
  try {
    createSecureContext({ ca: read(ca), cert: read(cert), key: read(key) });
    return [];
  } catch (error) {
    return [`${name}: no usable certificate and key (${oneLine(error)})`];
  }
}
