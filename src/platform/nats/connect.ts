import {
  type Authenticator,
  type ConnectionOptions,
  credsAuthenticator,
  connect as dial,
  ErrorCode,
  Events,
  type NatsConnection,
  NatsError,
  type TlsOptions,
} from "nats";
import { LEAST_MAX_PAYLOAD } from "../../contracts/fanout.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { encodeId } from "../../kernel/ids.js";
import type { Logger } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";
import { parseServerUrl, printableAddress } from "../../kernel/urls.js";
import { rereading } from "../files.js";
import { isTlsFault, noteRefusal, Refusal } from "../refusals.js";
import { type TlsFiles, usesTls } from "../tls.js";

export interface NatsOptions {
  /** All servers have one protocol, and the same user and password. */
  readonly servers: readonly string[];
  readonly name: string;
  readonly credsFile?: string | undefined;
  readonly tls?: TlsFiles;
  /** The server sends nothing before TLS. */
  readonly tlsFirst?: boolean | undefined;
  /** Commands set this to fail if no server accepts the connection at once. */
  readonly failFast?: boolean | undefined;
}

/** Reconnects for ever; half-open links end within 20 s. @throws Refusal if credentials are rejected or TLS fails */
export async function connectNats(options: NatsOptions, log: Logger): Promise<NatsConnection> {
  const settings = settingsOf(options);
  // While a client waits for its first server it does not tell that it is rejected: one that does not wait goes first.
  if (!options.failFast) await firstAccepted(settings, log);
  const connection = await dialed({ ...settings, waitOnFirstConnect: !options.failFast });
  void logStatus(connection, log);
  return connection;
}

function settingsOf(options: NatsOptions): ConnectionOptions {
  const [first] = options.servers.map(parseServerUrl);
  const { user = "", password = "" } = first ?? {};
  const tls = tlsOf(options, first?.protocol === "tls:");
  return {
    servers: options.servers.map(printableAddress),
    name: options.name,
    maxReconnectAttempts: -1,
    // The timeout is for a link that breaks during the greeting; the client's own default is 20 s.
    timeout: 3_000,
    reconnectTimeWait: 500,
    reconnectJitter: 500,
    pingInterval: 10_000,
    maxPingOut: 2,
    // An Error made for each request costs more than the request.
    noAsyncTraces: true,
    ignoreAuthErrorAbort: !options.failFast,
    ...(user === "" ? {} : password === "" ? { token: user } : { user, pass: password }),
    // A user of its own inbox can be kept from reading the replies to others.
    ...(user === "" || password === "" ? {} : { inboxPrefix: `_INBOX.${encodeId(user)}` }),
    ...(options.credsFile ? { authenticator: credentialsOf(options.credsFile) } : {}),
    ...(tls ? { tls } : {}),
  };
}

/** Credentials are read at each connection, as the client reads the files of TLS. */
export function credentialsOf(file: string): Authenticator {
  const read = rereading(file);
  return (nonce) => credsAuthenticator(read())(nonce);
}

/** The client insists on TLS, and verifies the certificate, if it is given an object, even an empty one. */
function tlsOf({ tls = {}, tlsFirst }: NatsOptions, required: boolean): TlsOptions | undefined {
  if (!required && !usesTls(tls)) return undefined;
  const { ca: caFile, cert: certFile, key: keyFile } = tls;
  return {
    ...(tlsFirst ? { handshakeFirst: true } : {}),
    ...(caFile ? { caFile } : {}),
    ...(certFile ? { certFile } : {}),
    ...(keyFile ? { keyFile } : {}),
  };
}

async function firstAccepted(settings: ConnectionOptions, log: Logger): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      const connection = await dialed({ ...settings, reconnect: false });
      const refusal = payloadRefusal(connection);
      await connection.close();
      if (refusal) throw refusal;
      return;
    } catch (error) {
      if (error instanceof Refusal) throw error;
      if (tries === 0) log.warn({ error: oneLine(error) }, "NATS is not available yet");
      await pause(SECOND / 2);
    }
  }
}

async function dialed(settings: ConnectionOptions): Promise<NatsConnection> {
  try {
    return await dial(settings);
  } catch (error) {
    throw connectError(error);
  }
}

const REFUSED = new Set<string>([
  ErrorCode.AuthorizationViolation,
  ErrorCode.AuthenticationExpired,
  ErrorCode.AccountExpired,
  ErrorCode.BadAuthentication,
  ErrorCode.BadCreds,
]);

const publicMessage = "NATS is unavailable";

function connectError(error: unknown): Error {
  const cause = error instanceof NatsError ? (error.chainedError ?? error) : error;
  const code = (error as { code?: string }).code ?? "";
  if (REFUSED.has(code))
    return new Refusal(`NATS refuses the connection: ${oneLine(error)}`, { cause: error, publicMessage });
  if (code === ErrorCode.ServerOptionNotAvailable)
    return new Refusal("NATS does not offer the TLS that is configured", { cause: error, publicMessage });
  if (code === ErrorCode.Tls || isTlsFault(cause) || isTlsFault(error))
    return new Refusal(`NATS: TLS failed: ${oneLine(cause)}`, { cause: error, publicMessage });
  return new AppError("unavailable", `NATS: ${oneLine(error)}`, { cause: error, publicMessage });
}

export function payloadFault({ info }: Pick<NatsConnection, "info">): string | undefined {
  const { max_payload = LEAST_MAX_PAYLOAD } = info ?? {};
  return max_payload < LEAST_MAX_PAYLOAD ? `max_payload is ${max_payload} bytes` : undefined;
}

function payloadRefusal(connection: NatsConnection): Refusal | undefined {
  const fault = payloadFault(connection);
  const message = `NATS: its ${fault}; messages of this service need ${LEAST_MAX_PAYLOAD} or more`;
  return fault === undefined ? undefined : new Refusal(message, { publicMessage: "NATS takes only small messages" });
}

/** Every attempt to reconnect reports its end in the same way: each state is logged once. */
async function logStatus(connection: NatsConnection, log: Logger): Promise<void> {
  let away = false;
  let reported = "";
  for await (const { type, data: about } of connection.status()) {
    const data = typeof about === "string" ? about : JSON.stringify(about);
    if (type === Events.Disconnect) {
      if (!away) log.warn({ server: data }, "NATS is unavailable; work waits");
      away = true;
    } else if (type === Events.Reconnect) {
      log.info({ server: data }, "NATS is available again");
      noteRefusal(connection, payloadRefusal(connection), log);
      away = false;
      reported = "";
    } else if (type === Events.Error && REFUSED.has(data)) {
      noteRefusal(connection, new Refusal(`NATS refuses the connection: ${data}`, { publicMessage }), log);
    } else if (type === Events.Error && data !== reported) {
      reported = data;
      log.error({ error: data }, "NATS reported an error");
    }
  }
}
