import { readFileSync } from "node:fs";
import {
  type CallOptions,
  type ChannelCredentials,
  type Client,
  credentials as grpcCredentials,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { metrics } from "@opentelemetry/api";
import { inSpan, SpanKind, traceHeaders } from "../../delivery/telemetry.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { SECOND } from "../../kernel/time.js";
import type { Majority, Probe } from "./failing.js";

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
  "grpc.keepalive_time_ms": 20_000,
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2_000,
  "grpc.max_receive_message_length": 16 * 1024 * 1024,
  // Every server behind a dns:/// name is used.
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
} as const;

const UPSTREAM_TIMEOUT_MS = 5 * SECOND;

const callTime = metrics.getMeter("avion-timeline").createHistogram("timeline_upstream_call_seconds", {
  description: "Time a call to an upstream took, in seconds",
  advice: { explicitBucketBoundaries: [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5] },
});

type Unary<Request, Response> = (
  request: Request,
  metadata: Metadata,
  options: Partial<CallOptions>,
  callback: (error: ServiceError | null, response: Response) => void,
) => unknown;

export interface UpstreamCall<Request, Response> {
  readonly client: Client;
  readonly name: string;
  readonly call: Unary<Request, Response>;
  readonly request: Request;
  /** The user or author asked about. */
  readonly subject: string;
  readonly majority: Majority;
  readonly probe: Probe;
  /** ms since the epoch. */
  readonly deadline?: number | undefined;
}

/**
 * Calls an upstream within 5 s, or before the caller's deadline if that is sooner.
 *
 * @throws AppError `unavailable` where the upstream is away, lacks the method, or fails for most; otherwise `failed`
 */
export async function callUpstream<Request, Response>(of: UpstreamCall<Request, Response>): Promise<Response> {
  const started = performance.now();
  let result = "OK";
  try {
    const attributes = { "rpc.system": "grpc", "rpc.method": of.name };
    const response = await inSpan(of.name, { kind: SpanKind.CLIENT, attributes }, () => unary(of));
    of.majority.note(of.subject, true);
    of.probe.remember(of.subject, (deadline) => unary({ ...of, deadline }));
    return response;
  } catch (error) {
    const code = (error as ServiceError).code;
    result = status[code] ?? "UNKNOWN";
    const away = code === status.UNAVAILABLE || code === status.UNIMPLEMENTED || (await isFailing(of, code, started));
    const details = oneLine((error as ServiceError).details || error);
    throw new AppError(away ? "unavailable" : "failed", `${of.name}: ${result}: ${details}`, { cause: error });
  } finally {
    callTime.record((performance.now() - started) / 1_000, { method: of.name, result });
  }
}

async function isFailing<Request, Response>(
  of: UpstreamCall<Request, Response>,
  code: status,
  started: number,
): Promise<boolean> {
  // A deadline shorter than ours says nothing about the upstream.
  if (code !== status.DEADLINE_EXCEEDED || !isHurried(of, started)) of.majority.note(of.subject, false);
  // A reader who waits for a page does not wait for the probe.
  const othersAnswered = of.deadline === undefined ? await of.probe.ask(of.subject) : undefined;
  return othersAnswered === false || of.majority.failing();
}

function isHurried({ deadline }: { readonly deadline?: number | undefined }, started: number): boolean {
  const waited = performance.now() - started;
  return deadline !== undefined && deadline - Date.now() + waited < UPSTREAM_TIMEOUT_MS;
}

function unary<Request, Response>({
  client,
  call,
  request,
  deadline,
}: UpstreamCall<Request, Response>): Promise<Response> {
  const metadata = new Metadata();
  const headers = traceHeaders();
  for (const name in headers) metadata.set(name, headers[name] as string);
  const latest = Date.now() + UPSTREAM_TIMEOUT_MS;
  return new Promise((resolve, reject) => {
    call.call(client, request, metadata, { deadline: Math.min(deadline ?? latest, latest) }, (error, response) =>
      error ? reject(error) : resolve(response),
    );
  });
}
