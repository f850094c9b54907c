import { readFile } from "node:fs/promises";
import { credsAuthenticator, connect as dial, Events, type NatsConnection, type TlsOptions } from "nats";
import type { Logger } from "../../kernel/logger.js";

/** Where NATS is and how to get in. */
export interface NatsOptions {
  readonly servers: readonly string[];
  /** Name shown in `nats server report connections`. */
  readonly name: string;
  readonly credsFile?: string | undefined;
  readonly caFile?: string | undefined;
  readonly certFile?: string | undefined;
  readonly keyFile?: string | undefined;
  /** Fails where no server lets it in at once, instead of waiting for one: somebody watches. */
  readonly impatient?: boolean | undefined;
}

/**
 * Connects, and keeps trying for ever: also the first time, so that roles can
 * start before their servers do, unless the caller is impatient. Half-open
 * links are noticed within 20 s.
 */
export async function connectNats(options: NatsOptions, log: Logger): Promise<NatsConnection> {
  const tls = tlsOf(options);
  const connection = await dial({
    servers: [...options.servers],
    name: options.name,
    maxReconnectAttempts: -1,
    waitOnFirstConnect: !options.impatient,
    // A link that breaks in the middle of the greeting is given up after this, and not after the client's own 20 s.
    timeout: 3_000,
    reconnectTimeWait: 500,
    reconnectJitter: 500,
    pingInterval: 10_000,
    maxPingOut: 2,
    ignoreAuthErrorAbort: !options.impatient,
    ...(options.credsFile ? { authenticator: credsAuthenticator(await readFile(options.credsFile)) } : {}),
    ...(tls ? { tls } : {}),
  });
  void logStatus(connection, log);
  return connection;
}

function tlsOf({ caFile, certFile, keyFile }: NatsOptions): TlsOptions | undefined {
  if (!caFile && !certFile) return undefined;
  return { ...(caFile ? { caFile } : {}), ...(certFile ? { certFile } : {}), ...(keyFile ? { keyFile } : {}) };
}

async function logStatus(connection: NatsConnection, log: Logger): Promise<void> {
  for await (const { type, data } of connection.status()) {
    if (type === Events.Disconnect) log.warn({ server: data }, "NATS is away; work waits");
    else if (type === Events.Reconnect) log.info({ server: data }, "NATS is back");
    else if (type === Events.Error) log.error({ error: data }, "NATS reports an error");
  }
}
