import { accessSync, constants, readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import { oneLine } from "../../kernel/errors.js";
import { ConfigError } from "../../kernel/variables.js";
import type { Config } from "./config.js";

type Connections = Pick<Config, "grpcServer" | "redis" | "nats" | "upstreams" | "database">;

/** @throws ConfigError naming every configured file that cannot be read, or holds no usable certificate */
export function checkFiles(connections: Connections): void {
  const { nats, database } = connections;
  const certificates = certificatesOf(connections);
  const files: [string, string | undefined][] = [["TIMELINE_NATS_CREDS", nats.credsFile]];
  for (const [name, { ca, cert, key }] of Object.entries(certificates))
    files.push([`${name}_CA`, ca], [`${name}_CERT`, cert], [`${name}_KEY`, key]);
  files.push(...databaseFiles(database));
  const faults = files.flatMap(([name, file]) => (file === undefined ? [] : readFault(name, file)));
  if (faults.length === 0)
    faults.push(...Object.entries(certificates).flatMap(([name, tls]) => certificateFault(name, tls)));
  if (faults.length > 0) throw new ConfigError(faults);
}

const certificatesOf = ({ grpcServer, nats, upstreams, redis, database }: Connections) => ({
  TIMELINE_GRPC_TLS: grpcServer,
  TIMELINE_NATS_TLS: { ca: nats.caFile, cert: nats.certFile, key: nats.keyFile },
  TIMELINE_UPSTREAM_TLS: upstreams,
  TIMELINE_REDIS_TLS: { ca: redis.caFile, cert: undefined, key: undefined },
  TIMELINE_DATABASE_TLS: { ca: database.caFile, cert: undefined, key: undefined },
});

const databaseFiles = ({ url }: Connections["database"]): [string, string][] =>
  [...(url === undefined ? [] : new URL(url).searchParams)]
    .filter(([parameter]) => /^ssl(cert|key|rootcert)$/.test(parameter))
    .map(([parameter, file]) => [`DATABASE_URL: ${parameter}`, file]);

/** The files that hold certificates, by the setting that names them. */
export function certificateFiles(connections: Connections): { setting: string; file: string }[] {
  const files: [string, string | undefined][] = databaseFiles(connections.database);
  for (const [name, { ca, cert }] of Object.entries(certificatesOf(connections)))
    files.push([`${name}_CA`, ca], [`${name}_CERT`, cert]);
  return files.flatMap(([setting, file]) => (file === undefined || /sslkey$/.test(setting) ? [] : { setting, file }));
}

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
