import { Client, Metadata, type MethodDefinition, type ServiceError, status } from "@grpc/grpc-js";
import { AppError, oneLine } from "../kernel/errors.js";
import { SECOND } from "../kernel/time.js";
import { clientCredentials, namedOptions } from "../platform/grpc/credentials.js";
import { MessageTypes, nameOf } from "../platform/grpc/message-types.js";
import type { TlsFiles } from "../platform/tls.js";
import { histogram } from "../telemetry/meters.js";
import { type OpenSpan, SpanKind, spansOf } from "../telemetry/spans.js";
import { createOutcomes, FAULTS, type Others, type Outcomes, Turns } from "./faults.js";

const CHANNEL_OPTIONS = {
  // Nobody reads channelz's counts of calls and messages.
  "grpc.enable_channelz": 0,
  // The proxy of https_proxy leads to servers outside; the upstreams are inside.
  "grpc.enable_http_proxy": 0,
  "grpc.keepalive_time_ms": 20_000,
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2_000,
  "grpc.max_receive_message_length": 16 * 1024 * 1024,
  // Calls are spread over all servers behind a dns:/// name.
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
} as const;

/** Connects at the first call, and reconnects by itself. */
export const connectUpstream = (address: string, tls: TlsFiles): Client =>
  new Client(address, clientCredentials(address, tls), { ...CHANNEL_OPTIONS, ...namedOptions(address, tls) });

const UPSTREAM_TIMEOUT_MS = 5 * SECOND;

const callTime = histogram(
  "timeline_upstream_call_seconds",
  "Time a call to an upstream took",
  [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5],
);

interface About {
  /** User or author that the call is about. */
  readonly subject: string;
  /** Deadline, in ms since the epoch. */
  readonly deadline?: number | undefined;
}

/** Words of grpc-js, Go and C++, Java, and .NET. The upstream may answer if it is asked for less. */
const TOO_LARGE = /larger than max|exceeds (the )?(configured )?maximum/i;

const isAnswered = (error: unknown, code: status): boolean =>
  error instanceof Error && (error.cause as ServiceError | undefined)?.code === code;

/** Returns false for errors of Redis and NATS. */
export const isOfUpstream = (error: unknown): boolean =>
  error instanceof Error && (error.cause as ServiceError | undefined)?.metadata instanceof Metadata;

export const isUnimplemented = (error: unknown): boolean => isAnswered(error, status.UNIMPLEMENTED);

export const isNotFound = (error: unknown): boolean => isAnswered(error, status.NOT_FOUND);

export const isInvalidArgument = (error: unknown): boolean => isAnswered(error, status.INVALID_ARGUMENT);

export const isExhausted = (error: unknown): boolean => isAnswered(error, status.RESOURCE_EXHAUSTED);

/** Returns true if the answer is larger than a message may be. */
export const isTooLarge = (error: unknown): boolean => isExhausted(error) && TOO_LARGE.test((error as Error).message);

/** Returns the row of {@link FAULTS}. */
function failureOf({ code, details }: ServiceError): keyof typeof FAULTS {
  if (code === status.UNIMPLEMENTED || (code === status.RESOURCE_EXHAUSTED && TOO_LARGE.test(details))) return "answer";
  if (code === status.INVALID_ARGUMENT || code === status.NOT_FOUND) return "refusal";
  return code === status.UNAVAILABLE ? "silence" : "error";
}

/** Returns the error of a call to the method `name`, by how others fare. */
export function errorOf(
  error: ServiceError,
  { name, subject, others }: { readonly name: string; readonly subject: string; readonly others: Others },
): AppError {
  const failure = failureOf(error);
  const fault = FAULTS[failure][others];
  const code = fault === "retry" ? "failed" : "unavailable";
  const publicMessage = `${name}: ${status[error.code] ?? "UNKNOWN"}`;
  return new AppError(code, `${publicMessage}: ${oneLine(error.details || error)}`, {
    cause: error,
    publicMessage,
    subject: fault === "outage" || failure === "answer" ? undefined : subject,
  });
}

/** Notes the failure of a call, and resolves to how others fare. */
async function othersThan(
  outcomes: Outcomes,
  error: ServiceError,
  { subject, deadline, waited }: About & { readonly waited: number },
): Promise<Others> {
  if (failureOf(error) === "answer") return "answered";
  const isHurried = deadline !== undefined && deadline - Date.now() + waited < UPSTREAM_TIMEOUT_MS;
  // A deadline shorter than ours says nothing about the upstream.
  if (error.code !== status.DEADLINE_EXCEEDED || !isHurried) outcomes.failed(subject);
  // A reader does not wait for calls about others.
  return deadline === undefined ? outcomes.ask(subject) : outcomes.latest();
}

/** Calls methods of an upstream. The outcomes of a method's calls tell whose fault a failure is. */
export function createCallUpstream(client: Client) {
  const types = new MessageTypes();
  const methods = new Map<string, Outcomes>();
  const outcomesOf = (name: string): Outcomes => {
    const outcomes = methods.get(name) ?? createOutcomes();
    methods.set(name, outcomes);
    return outcomes;
  };
  const turns = new Turns((name, subject) => outcomesOf(name).ask(subject));

  /**
   * Calls an upstream within 5 s, or before the caller's deadline if that is sooner. The calls of one method for one
   * piece of work continue the trace that is active now.
   *
   * @throws AppError as {@link FAULTS} decides
   */
  const open = <Request, Response>(method: MethodDefinition<Request, Response>) => {
    const name = nameOf(method);
    const outcomes = outcomesOf(name);
    const traced = tracedCalls(name);
    const call = unaryCall(client, method, types);
    return async (request: Request, about: About): Promise<Response> => {
      const { span, metadata } = traced();
      const send = (deadline: number | undefined): Promise<Response> => call(request, metadata, deadline);
      const started = performance.now();
      const { response, error } = await send(about.deadline).then(
        (response) => ({ response, error: undefined }),
        (error: ServiceError) => ({ response: undefined, error }),
      );
      const waited = performance.now() - started;
      const result = error ? (status[error.code] ?? "UNKNOWN") : "OK";
      callTime.record(waited / SECOND, { method: name, result });
      span.end(error);
      const { subject } = about;
      if (error)
        throw errorOf(error, { name, subject, others: await othersThan(outcomes, error, { ...about, waited }) });
      outcomes.answered(subject, send);
      return response as Response;
    };
  };

  return {
    open,
    /** Works as a single call of {@link open}. */
    once: <Request, Response>(method: MethodDefinition<Request, Response>, request: Request, about: About) =>
      open(method)(request, about),
    /** Sends a call without a deadline, unless an earlier one about the same subject is still unanswered. */
    inTurn: <T>(method: { readonly path: string }, subject: string, call: () => Promise<T>): Promise<T> =>
      turns.take(nameOf(method), subject, call),
  };
}

interface Traced {
  readonly span: OpenSpan;
  readonly metadata: Metadata;
}

/** Calls that share a span share its metadata, too: the client copies them. */
function tracedCalls(name: string): () => Traced {
  const spanOf = spansOf(name, { kind: SpanKind.CLIENT, attributes: { "rpc.system": "grpc", "rpc.method": name } });
  let latest: Traced | undefined;
  return () => {
    const span = spanOf();
    if (latest?.span === span) return latest;
    const metadata = new Metadata();
    for (const [name, value] of Object.entries(span.headers)) metadata.set(name, value);
    latest = { span, metadata };
    return latest;
  };
}

/** The returned function rejects with a ServiceError. */
function unaryCall<Request, Response>(
  client: Client,
  { path, requestSerialize, responseDeserialize: decode }: MethodDefinition<Request, Response>,
  types: MessageTypes,
) {
  const deserialize = (bytes: Buffer): Response => types.decodeResponse(path, bytes, decode);
  return (request: Request, metadata: Metadata, deadline = Number.POSITIVE_INFINITY): Promise<Response> => {
    const options = { deadline: Math.min(deadline, Date.now() + UPSTREAM_TIMEOUT_MS) };
    // The client captures a stack for each call, in case the call fails. Nobody reads it.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    try {
      return new Promise((resolve, reject) =>
        client.makeUnaryRequest(path, requestSerialize, deserialize, request, metadata, options, (error, response) =>
          error ? reject(error) : resolve(response as Response),
        ),
      );
    } finally {
      Error.stackTraceLimit = stackTraceLimit;
    }
  };
}
