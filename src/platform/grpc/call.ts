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

/** How a channel to or from us is secured; all undefined: not at all. */
export interface TlsFiles {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** Credentials of the channels to the upstreams. */
export function clientCredentials({ ca, cert, key }: TlsFiles): ChannelCredentials {
  if (!ca && !cert) return grpcCredentials.createInsecure();
  const read = (file: string | undefined): Buffer | null => (file ? readFileSync(file) : null);
  return grpcCredentials.createSsl(read(ca), read(key), read(cert));
}

/** Settings of every channel to an upstream. */
export const CHANNEL_OPTIONS = {
  "grpc.keepalive_time_ms": 20_000,
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2_000,
  "grpc.max_receive_message_length": 16 * 1024 * 1024,
  // A name that stands for several servers (dns:///…) is used whole.
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

/** One call of an upstream. */
export interface UpstreamCall<Request, Response> {
  readonly client: Client;
  readonly name: string;
  readonly call: Unary<Request, Response>;
  readonly request: Request;
  /** Whom it is about. */
  readonly subject: string;
  /** What is known of the upstream's state. */
  readonly majority: Majority;
  readonly probe: Probe;
  /** When the caller stops waiting, in ms since the epoch. */
  readonly deadline?: number | undefined;
}

/**
 * Calls one method of an upstream: with a deadline of 5 s or of the caller's
 * if that is sooner, inside the caller's trace, measured.
 *
 * @throws AppError `unavailable` where the upstream cannot be reached, lacks the method, or
 * fails for most; `failed` where only this fails, a time-out included.
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

/** Whether it is the upstream that fails, and not only what was asked of it. */
async function isFailing<Request, Response>(
  of: UpstreamCall<Request, Response>,
  code: status,
  started: number,
): Promise<boolean> {
  // A caller in a hurry says nothing of the upstream.
  if (code !== status.DEADLINE_EXCEEDED || !isHurried(of, started)) of.majority.note(of.subject, false);
  // Who waits for a page is not kept waiting for this.
  const othersAnswered = of.deadline === undefined ? await of.probe.ask(of.subject) : undefined;
  return othersAnswered === false || of.majority.failing();
}

/** True where the caller's deadline was sooner than ours. */
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
