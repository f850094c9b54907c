import { Client, Metadata, type MethodDefinition, type ServiceError, status } from "@grpc/grpc-js";
import { type OpenSpan, SpanKind, spansOf } from "../../delivery/telemetry.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { histogram } from "../../kernel/meters.js";
import { SECOND } from "../../kernel/time.js";
import { createJudge, type Judge } from "../outages.js";
import { Turns } from "../turns.js";
import { clientCredentials, type TlsFiles } from "./credentials.js";
import { decodeResponse } from "./int64.js";

const CHANNEL_OPTIONS = {
  // Its counts of calls and messages are read by nobody.
  "grpc.enable_channelz": 0,
  // A proxy that https_proxy names leads to servers outside; these are our own.
  "grpc.enable_http_proxy": 0,
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
  "Time a call to an upstream took",
  [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5],
);

/** The upstream answers that it does not take, or does not know, the one asked about. */
const ABOUT_ONE: ReadonlySet<status> = new Set([status.INVALID_ARGUMENT, status.NOT_FOUND]);

interface About {
  /** The subject is the user or author asked about. */
  readonly subject: string;
  /** The deadline is in ms since the epoch. */
  readonly deadline?: number | undefined;
}

/** Takes an answer, or the AppError that says why there is none. It is called once. */
export type Answered<Response> = (error: AppError | undefined, response?: Response) => void;

/** Calls an upstream within 5 s, or before the caller's deadline if that is sooner. Never throws. */
type CallMethod<Request, Response> = (request: Request, about: About, answered: Answered<Response>) => void;

interface CallUpstream {
  /** The calls of one method for one piece of work continue the trace that is active now. */
  open<Request, Response>(method: MethodDefinition<Request, Response>): CallMethod<Request, Response>;
  /** @throws AppError `unavailable` where the upstream does not answer or fails for most; otherwise `failed` */
  once<Request, Response>(
    method: MethodDefinition<Request, Response>,
    request: Request,
    about: About,
  ): Promise<Response>;
  /** Calls without a deadline do not wait for a subject that keeps others waiting. */
  inTurn<T>(method: { readonly path: string }, subject: string, call: () => Promise<T>): Promise<T>;
}

/** grpc-js, Go and C++, Java, and .NET use these words. The upstream may answer if it is asked for less. */
const TOO_LARGE = /larger than max|exceeds (the )?(configured )?maximum/i;

const isAnswered = (error: unknown, code: status): boolean =>
  error instanceof Error && (error.cause as ServiceError | undefined)?.code === code;

/** Returns false for errors of Redis and NATS. */
export const isOfUpstream = (error: unknown): boolean =>
  error instanceof Error && (error.cause as ServiceError | undefined)?.metadata instanceof Metadata;

export const isUnimplemented = (error: unknown): boolean => isAnswered(error, status.UNIMPLEMENTED);

export const isNotFound = (error: unknown): boolean => isAnswered(error, status.NOT_FOUND);

export const isInvalidArgument = (error: unknown): boolean => isAnswered(error, status.INVALID_ARGUMENT);

/** The answer is larger than a message may be. */
export const isTooLarge = (error: Error): boolean =>
  isAnswered(error, status.RESOURCE_EXHAUSTED) && TOO_LARGE.test(error.message);

/** Judges by the calls made through it whether a method of the upstream is unavailable. */
export function createCallUpstream(client: Client): CallUpstream {
  const judges = new Map<string, Judge>();
  const judgeOf = (name: string): Judge => {
    const judge = judges.get(name) ?? createJudge();
    judges.set(name, judge);
    return judge;
  };
  const turns = new Turns(async (name, subject) => (await judgeOf(name).ofFailure(subject)).isOfOne);

  const refusalOf = async (
    error: Error,
    name: string,
    about: About & { readonly waited: number },
  ): Promise<AppError> => {
    const { code, details } = error as ServiceError;
    const isAnswer = code === status.UNIMPLEMENTED || (code === status.RESOURCE_EXHAUSTED && TOO_LARGE.test(details));
    const { isOutage, isOfOne } = isAnswer ? ANSWERED : await judgementOf(judgeOf(name), code, about);
    const isAway = code === status.UNAVAILABLE || isOutage;
    const publicMessage = `${name}: ${status[code] ?? "UNKNOWN"}`;
    return new AppError(isAway ? "unavailable" : "failed", `${publicMessage}: ${oneLine(details || error)}`, {
      cause: error,
      publicMessage,
      subject: isOfOne ? about.subject : undefined,
    });
  };

  const again = <Request, Response>(method: MethodDefinition<Request, Response>, sent: Sent<Request>): Promise<void> =>
    new Promise((resolve, reject) => unary(client, method, sent, (error) => (error ? reject(error) : resolve())));

  const open: CallUpstream["open"] = (method) => {
    const name = nameOf(method);
    const judge = judgeOf(name);
    const traced = tracedCalls(name);
    return (request, about, answered) => {
      const { span, metadata } = traced();
      const started = performance.now();
      unary(client, method, { request, deadline: about.deadline, metadata }, (error, response) => {
        const waited = performance.now() - started;
        const result = error ? (status[error.code] ?? "UNKNOWN") : "OK";
        callTime.record(waited / SECOND, { method: name, result });
        span.end(error);
        if (error) return void refusalOf(error, name, { ...about, waited }).then(answered);
        judge.answered(about.subject, (deadline) => again(method, { request, deadline, metadata }));
        answered(undefined, response);
      });
    };
  };

  return {
    open,
    once: (method, request, about) => promised((answered) => open(method)(request, about, answered)),
    inTurn: (method, subject, call) => turns.take(nameOf(method), subject, call),
  };
}

/** The upstream answers: it lacks the method for good, or has more than a message takes. */
const ANSWERED = { isOutage: false, isOfOne: false };

async function judgementOf(judge: Judge, code: status, { subject, deadline, waited }: About & { waited: number }) {
  const isHurried = deadline !== undefined && deadline - Date.now() + waited < UPSTREAM_TIMEOUT_MS;
  // A deadline shorter than ours says nothing about the upstream.
  if (code !== status.DEADLINE_EXCEEDED || !isHurried) judge.failed(subject);
  // A reader does not wait for calls about others.
  const judgement = deadline === undefined ? await judge.ofFailure(subject) : judge.ofFailureNow();
  // A refusal of one id is an answer; an upstream that refuses every id is failing.
  const isOutage = judgement.isOutage && !(ABOUT_ONE.has(code) && judgement.isOfOne);
  return { ...judgement, isOutage };
}

/** @throws AppError of the call */
export const promised = <Response>(call: (answered: Answered<Response>) => void): Promise<Response> =>
  new Promise((resolve, reject) => call((error, response) => (error ? reject(error) : resolve(response as Response))));

export const nameOf = ({ path }: { readonly path: string }): string => path.slice(path.lastIndexOf("/") + 1);

interface Traced {
  readonly span: OpenSpan;
  /** Continues the trace of the span. */
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

interface Sent<Request> {
  readonly request: Request;
  readonly deadline: number | undefined;
  readonly metadata: Metadata;
}

function unary<Request, Response>(
  client: Client,
  { path, requestSerialize, responseDeserialize: decode }: MethodDefinition<Request, Response>,
  { request, deadline, metadata }: Sent<Request>,
  answered: (error: ServiceError | null, response?: Response) => void,
): void {
  const latest = Date.now() + UPSTREAM_TIMEOUT_MS;
  const options = { deadline: deadline === undefined ? latest : Math.min(deadline, latest) };
  const responseDeserialize = (bytes: Buffer): Response => decodeResponse(path, bytes, decode);
  // The client takes a stack for each call, to show it should the call fail: nobody reads it.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, metadata, options, answered);
  } catch (error) {
    answered(error as ServiceError);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}
