import {
  type handleUnaryCall,
  type Metadata,
  type ServerUnaryCall,
  type ServiceDefinition,
  type ServiceError,
  status,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { AppError, oneLine, PRESENTATION } from "../../kernel/errors.js";
import { createFailureLog, type Logger } from "../../kernel/logger.js";
import { SECOND } from "../../kernel/time.js";
import { counter, histogram } from "../../telemetry/meters.js";
import type { Headers } from "../../telemetry/spans.js";
import { contextOf, type OpenSpan, openSpan, SpanKind } from "../../telemetry/spans.js";
import { type MessageTypes, nameOf } from "./message-types.js";
import { trailersOf } from "./retry-info.js";

export interface Service {
  readonly name: string;
  readonly definition: ServiceDefinition;
  readonly implementation: UntypedServiceImplementation;
}

export interface CallContext {
  /** The deadline is in ms since the epoch. */
  readonly deadline: number;
}

const DEFAULT_DEADLINE_MS = 10 * SECOND;

const requests = counter("timeline_grpc_requests", "gRPC calls, by status");
const duration = histogram(
  "timeline_grpc_request_seconds",
  "Time a gRPC call took",
  [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 10],
);

/** Counters start at 0, so that the first failure shows as a rise. */
const EXPECTED = [status.OK, status.INTERNAL, status.UNAVAILABLE, status.DEADLINE_EXCEEDED];

/** Turns a function into a gRPC method. An error that is no AppError is logged whole, and answered INTERNAL. */
export function unary<Request, Response>(
  name: string,
  log: Logger,
  method: (request: Request, context: CallContext) => Promise<Response>,
): handleUnaryCall<Request, Response> {
  return answering({ name, log }, (request, deadline, span) => span.run(async () => method(request, { deadline })));
}

interface TracedContext extends CallContext {
  /** The span of the call is active in `work`: its log lines and calls carry the trace. */
  traced<T>(work: () => Promise<T>): Promise<T>;
}

interface Traced {
  readonly name: string;
  readonly exportsTraces: boolean;
  readonly log: Logger;
}

/** Works as {@link unary}. Without `traced` the span of a call is active only if it is exported (decision 17). */
export function lazilyTraced<Request, Response>(
  traced: Traced,
  method: (request: Request, context: TracedContext) => Promise<Response>,
): handleUnaryCall<Request, Response> {
  return answering(traced, (request, deadline, span) => {
    const start = (): Promise<Response> => method(request, { deadline, traced: (work) => span.run(work) });
    return span.isSampled ? span.run(start) : start();
  });
}

function answering<Request, Response>(
  { name, log, exportsTraces = true }: Pick<Traced, "name" | "log"> & Partial<Traced>,
  start: (request: Request, deadline: number, span: OpenSpan) => Promise<Response>,
): handleUnaryCall<Request, Response> {
  const labels = { method: name };
  for (const code of EXPECTED) requests.add(0, { ...labels, code: status[code] });
  const logFailure = createFailureLog(log, "a call failed");
  const attributes = { "rpc.system": "grpc", "rpc.method": name };
  return (call, callback) => {
    const started = performance.now();
    const parent = contextOf(headersOf(call.metadata));
    const span = openSpan(name, { kind: SpanKind.SERVER, parent, attributes, exportsTraces });
    const ended = (code: status, error?: unknown): void => {
      const ms = performance.now() - started;
      requests.add(1, { ...labels, code: status[code] ?? "UNKNOWN" });
      duration.record(ms / SECOND, labels);
      if (code === status.OK ? log.logsAccess() : log.isLevelEnabled("info")) {
        const what = { ...labels, code: status[code], duration_ms: tenths(ms), peer: call.getPeer() };
        log.info({ ...what, ...span.ids }, "a call is served");
      }
      span.end(error);
    };
    const answered = (response: Response): void => {
      ended(status.OK);
      callback(null, response);
    };
    const failed = (error: unknown): void => {
      const refusal = span.run(() => serviceError(error, { name, log, logFailure }));
      ended(refusal.code ?? status.UNKNOWN, error);
      callback(refusal);
    };
    try {
      if (call.request instanceof AppError) throw call.request;
      start(call.request, deadlineOf(call), span).then(answered, failed);
    } catch (error) {
      failed(error);
    }
  };
}

/**
 * Generated code throws at an int64 beyond the safe integers, and gRPC would answer INTERNAL. The request is read as
 * the error that the method answers.
 */
export const readingInt64 = (service: ServiceDefinition, types: MessageTypes): ServiceDefinition =>
  withMethods(service, ({ path, requestDeserialize }) => ({
    requestDeserialize: (bytes: Buffer): unknown => {
      try {
        return requestDeserialize(bytes);
      } catch (error) {
        const fault = types.int64Fault(path, bytes);
        if (fault) return fault;
        throw error;
      }
    },
  }));

/** The methods of the returned service answer encoded messages. */
export const encodedResponses = (service: ServiceDefinition): ServiceDefinition =>
  withMethods(service, () => ({ responseSerialize: (message: Buffer) => message }));

function withMethods(service: ServiceDefinition, change: (method: ServiceDefinition[string]) => object) {
  const methods = Object.entries(service).map(([name, method]) => [name, { ...method, ...change(method) }]);
  return Object.fromEntries(methods) as ServiceDefinition;
}

const tenths = (ms: number): number => Math.round(ms * 10) / 10;

interface Failing {
  readonly name: string;
  readonly log: Logger;
  readonly logFailure: ReturnType<typeof createFailureLog>;
}

function serviceError(error: unknown, { name, log, logFailure }: Failing): Partial<ServiceError> {
  if (error instanceof AppError) {
    if (error.publicMessage !== error.message) logFailure(error.code, { method: name, error: oneLine(error) });
    return {
      code: PRESENTATION[error.code].grpcStatus,
      details: error.publicMessage,
      message: error.publicMessage,
      metadata: trailersOf(error),
    };
  }
  log.error(
    { method: name, error: oneLine(error), stack: (error as Error).stack },
    "a gRPC method failed unexpectedly",
  );
  return { code: status.INTERNAL, details: "internal error", message: "internal error" };
}

function deadlineOf(call: ServerUnaryCall<unknown, unknown>): number {
  const asked = call.getDeadline();
  const ms = asked instanceof Date ? asked.getTime() : asked;
  return Number.isFinite(ms) ? ms : Date.now() + DEFAULT_DEADLINE_MS;
}

function headersOf(metadata: Metadata): Headers {
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

/** A service is a set of functions; its methods are named as in the proto. */
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
