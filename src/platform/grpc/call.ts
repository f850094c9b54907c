import { readFileSync } from "node:fs";
import {
  type ChannelCredentials,
  Client,
  credentials as grpcCredentials,
  Metadata,
  type MethodDefinition,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { inSpan, SpanKind, traceHeaders } from "../../delivery/telemetry.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { histogram } from "../../kernel/meters.js";
import { SECOND } from "../../kernel/time.js";
import { createMajority, createProbe } from "../failing.js";

/** All undefined: no TLS. */
export interface TlsFiles {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

export function clientCredentials({ ca, cert, key }: TlsFiles): ChannelCredentials {
  if (!ca && !cert) return grpcCredentials.createInsecure();
  const read = (file: string | undefined): Buffer | null => (file ? readFileSync(file) : null);
  return grpcCredentials.createSsl(read(ca), read(key), read(cert));
}

export const CHANNEL_OPTIONS = {
  // Its counts of calls and messages are read by nobody.
  "grpc.enable_channelz": 0,
  "grpc.keepalive_time_ms": 20_000,
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2_000,
  "grpc.max_receive_message_length": 16 * 1024 * 1024,
  // Every server behind a dns:/// name is used.
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
} as const;

/** Connects at the first call, and reconnects by itself. */
export const connectUpstream = (address: string, tls: TlsFiles): Client =>
  new Client(address, clientCredentials(tls), CHANNEL_OPTIONS);

const UPSTREAM_TIMEOUT_MS = 5 * SECOND;

const callTime = histogram(
  "timeline_upstream_call_seconds",
  "Time a call to an upstream took, in seconds",
  [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5],
);

interface About {
  /** The user or author asked about. */
  readonly subject: string;
  /** ms since the epoch. */
  readonly deadline?: number | undefined;
}

/**
 * Calls an upstream within 5 s, or before the caller's deadline if that is sooner.
 *
 * @throws AppError `unavailable` where the upstream does not answer, lacks the method, or fails for most; otherwise `failed`
 */
type CallUpstream = <Request, Response>(
  method: MethodDefinition<Request, Response>,
  request: Request,
  about: About,
) => Promise<Response>;

/** Judges by the calls made through it whether the upstream is unavailable. */
export function createCallUpstream(client: Client): CallUpstream {
  const majority = createMajority();
  const probe = createProbe(majority);

  const isFailing = async (code: status, { subject, deadline }: About, waited: number): Promise<boolean> => {
    const isHurried = deadline !== undefined && deadline - Date.now() + waited < UPSTREAM_TIMEOUT_MS;
    // A deadline shorter than ours says nothing about the upstream.
    if (code !== status.DEADLINE_EXCEEDED || !isHurried) majority.note(subject, false);
    // A reader who waits for a page does not wait for the probe.
    const othersAnswered = deadline === undefined ? await probe.ask(subject) : undefined;
    return othersAnswered === false || majority.failing();
  };

  return (method, request, about) => {
    const name = nameOf(method);
    const send = (deadline: number | undefined) => unary(client, method, { request, deadline });
    const started = performance.now();
    const ended = (result: string): void =>
      callTime.record((performance.now() - started) / SECOND, { method: name, result });
    const attributes = { "rpc.system": "grpc", "rpc.method": name };
    return inSpan(name, { kind: SpanKind.CLIENT, attributes }, () => send(about.deadline)).then(
      (response) => {
        ended("OK");
        majority.note(about.subject, true);
        probe.remember(about.subject, send);
        return response;
      },
      async (error: unknown) => {
        const { code, details } = error as ServiceError;
        const result = status[code] ?? "UNKNOWN";
        ended(result);
        const isAway = code === status.UNAVAILABLE || code === status.UNIMPLEMENTED;
        const away = isAway || (await isFailing(code, about, performance.now() - started));
        const message = `${name}: ${result}: ${oneLine(details || error)}`;
        throw new AppError(away ? "unavailable" : "failed", message, { cause: error });
      },
    );
  };
}

export const nameOf = ({ path }: { readonly path: string }): string => path.slice(path.lastIndexOf("/") + 1);

function unary<Request, Response>(
  client: Client,
  { path, requestSerialize, responseDeserialize }: MethodDefinition<Request, Response>,
  { request, deadline }: { readonly request: Request; readonly deadline: number | undefined },
): Promise<Response> {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(traceHeaders())) metadata.set(name, value as string);
  const latest = Date.now() + UPSTREAM_TIMEOUT_MS;
  const options = { deadline: Math.min(deadline ?? latest, latest) };
  return new Promise((resolve, reject) => {
    const answered = (error: ServiceError | null, response?: Response): void =>
      error ? reject(error) : resolve(response as Response);
    // The client takes a stack for each call, to show it should the call fail: nobody reads it.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, metadata, options, answered);
    Error.stackTraceLimit = stackTraceLimit;
  });
}
