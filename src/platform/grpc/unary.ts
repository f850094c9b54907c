import {
  type handleUnaryCall,
  Metadata,
  type ServerUnaryCall,
  type ServiceDefinition,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { contextOf, inSpan, SpanKind } from "../../delivery/telemetry.js";
import { AppError, oneLine, PRESENTATION } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { counter, histogram } from "../../kernel/meters.js";
import { SECOND } from "../../kernel/time.js";
import { nameOf } from "./call.js";
import type { Service } from "./serve.js";

export interface CallContext {
  /** ms since the epoch. */
  readonly deadline: number;
}

const DEFAULT_DEADLINE_MS = 10 * SECOND;

const requests = counter("timeline_grpc_requests", "gRPC calls by method and status");
const duration = histogram(
  "timeline_grpc_request_seconds",
  "Time a gRPC call took, in seconds",
  [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 10],
);

/** Counted from 0, so that the first failure shows as a rise. */
const EXPECTED = [status.OK, status.INTERNAL, status.UNAVAILABLE, status.DEADLINE_EXCEEDED];

/** Turns a function into a gRPC method. An error that is no AppError is logged whole, and answered INTERNAL. */
export function unary<Request, Response>(
  name: string,
  log: Logger,
  method: (request: Request, context: CallContext) => Promise<Response>,
): handleUnaryCall<Request, Response> {
  for (const code of EXPECTED) requests.add(0, { method: name, code: status[code] });
  return (call, callback) => {
    const started = performance.now();
    const parent = contextOf(headersOf(call.metadata));
    const ended = (code: status): void => {
      const ms = performance.now() - started;
      requests.add(1, { method: name, code: status[code] ?? "UNKNOWN" });
      duration.record(ms / SECOND, { method: name });
      log.info({ method: name, code: status[code], duration_ms: tenths(ms), peer: call.getPeer() }, "a call is served");
    };
    const answered = (response: Response): void => {
      ended(status.OK);
      callback(null, response);
    };
    const failed = (error: unknown): never => {
      const refusal = serviceError(error, name, log);
      ended(refusal.code ?? status.UNKNOWN);
      callback(refusal);
      throw error;
    };
    const work = async (): Promise<Response> => method(call.request, { deadline: deadlineOf(call) });
    const attributes = { "rpc.system": "grpc", "rpc.method": name };
    inSpan(name, { kind: SpanKind.SERVER, parent, attributes }, () => work().then(answered, failed)).catch(
      () => undefined,
    );
  };
}

/** A service whose methods answer encoded messages. */
export function encodedResponses(service: ServiceDefinition): ServiceDefinition {
  const methods = Object.entries(service).map(([name, method]) => [
    name,
    { ...method, responseSerialize: (message: Buffer) => message },
  ]);
  return Object.fromEntries(methods) as ServiceDefinition;
}

const tenths = (ms: number): number => Math.round(ms * 10) / 10;

function serviceError(error: unknown, name: string, log: Logger): Partial<ServiceError> {
  if (error instanceof AppError) {
    const metadata = new Metadata();
    // gRPC A6, "Pushback": a client with a retry policy waits as long.
    if (error.retryAfterMs !== undefined) metadata.set("grpc-retry-pushback-ms", `${error.retryAfterMs}`);
    return { code: PRESENTATION[error.code].grpcStatus, details: error.message, message: error.message, metadata };
  }
  log.error({ method: name, error: oneLine(error), stack: (error as Error).stack }, "a call broke");
  return { code: status.INTERNAL, details: "internal error", message: "internal error" };
}

function deadlineOf(call: ServerUnaryCall<unknown, unknown>): number {
  const asked = call.getDeadline();
  const ms = asked instanceof Date ? asked.getTime() : asked;
  return Number.isFinite(ms) ? ms : Date.now() + DEFAULT_DEADLINE_MS;
}

function headersOf(metadata: Metadata): {
  get(name: string): string | undefined;
  entries(): Iterable<readonly [string, string]>;
} {
  const get = (name: string): string | undefined => metadata.get(name)[0]?.toString();
  return { get, entries: () => Object.keys(metadata.getMap()).map((name) => [name, get(name) ?? ""] as const) };
}

type Methods<Definition extends ServiceDefinition> = {
  readonly [Name in keyof Definition]: (
    request: ReturnType<Definition[Name]["requestDeserialize"]>,
    context: CallContext,
  ) => Promise<ReturnType<Definition[Name]["responseDeserialize"]>>;
};

type Method = Methods<ServiceDefinition>[string];

/** A service of functions; its methods are named as in the proto. */
export function unaryService<Definition extends ServiceDefinition>(
  definition: Definition,
  methods: Methods<Definition>,
  log: Logger,
): Service {
  const entries = Object.entries(definition);
  const implementation = entries.map(([name, method]) => [name, unary(nameOf(method), log, methods[name] as Method)]);
  const [, name = ""] = entries[0]?.[1].path.split("/") ?? [];
  return { name, definition, implementation: Object.fromEntries(implementation) };
}
