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
import { inSpan, SpanKind, traceHeaders } from "../../delivery/traced.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { SECOND } from "../../kernel/time.js";

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

/**
 * Calls one method of an upstream: with a deadline of 5 s or of the caller's
 * if that is sooner, inside the caller's trace, measured.
 *
 * @throws AppError `unavailable` where the upstream cannot be reached or lacks the method,
 * `failed` for every other status, a time-out included: that may be about this one request.
 */
export async function callUpstream<Request, Response>(
  client: Client,
  method: { readonly name: string; readonly call: Unary<Request, Response> },
  request: Request,
  deadline?: number,
): Promise<Response> {
  const started = performance.now();
  let result = "OK";
  try {
    return await inSpan(
      method.name,
      { kind: SpanKind.CLIENT, attributes: { "rpc.system": "grpc", "rpc.method": method.name } },
      () => unary(client, method.call, request, deadline),
    );
  } catch (error) {
    const code = (error as ServiceError).code;
    result = status[code] ?? "UNKNOWN";
    const kind = code === status.UNAVAILABLE || code === status.UNIMPLEMENTED ? "unavailable" : "failed";
    throw new AppError(kind, `${method.name}: ${result}: ${oneLine((error as ServiceError).details || error)}`, {
      cause: error,
    });
  } finally {
    callTime.record((performance.now() - started) / 1_000, { method: method.name, result });
  }
}

function unary<Request, Response>(
  client: Client,
  call: Unary<Request, Response>,
  request: Request,
  deadline: number | undefined,
): Promise<Response> {
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
