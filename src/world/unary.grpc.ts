import { setTimeout as delay } from "node:timers/promises";
import { type handleUnaryCall, type ServerUnaryCall, type ServiceError, status } from "@grpc/grpc-js";
import type { FaultService, Faults } from "./faults.js";
import { WorldError } from "./world-error.js";

/** How one method answers, and which of the faults concern it. */
export interface UnaryMethod<Request, Response> {
  readonly service: FaultService;
  readonly method: string;
  readonly faults: Faults | undefined;
  readonly userOf?: (request: Request) => string;
  readonly answer: (request: Request) => Response;
}

/** Makes a handler of a method: consults the faults, answers, and maps refusals to status codes. */
export function unary<Request, Response>(method: UnaryMethod<Request, Response>): handleUnaryCall<Request, Response> {
  return (call, callback) => {
    const answered = async (): Promise<Response> => {
      await fail(method, call);
      return method.answer(call.request);
    };
    answered().then(
      (response) => callback(null, response),
      (error: unknown) => callback(toServiceError(error)),
    );
  };
}

class InjectedFault extends Error {
  constructor(readonly code: status) {
    super(`broken on purpose: ${status[code] ?? code}`);
  }
}

async function fail<Request, Response>(
  { faults, service, method, userOf }: UnaryMethod<Request, Response>,
  call: ServerUnaryCall<Request, Response>,
): Promise<void> {
  const fault = faults?.find({ service, method, userId: userOf?.(call.request) });
  if (fault === undefined) return;
  if (fault.delayMs !== undefined && fault.delayMs > 0) await pause(fault.delayMs, call);
  if (fault.code !== status.OK) throw new InjectedFault(fault.code);
}

/** Ends early with the call, so that long delays do not pile up behind clients that gave up. */
async function pause(
  delayMs: number,
  call: { once(event: "cancelled", listener: () => void): unknown },
): Promise<void> {
  const gone = new AbortController();
  call.once("cancelled", () => gone.abort());
  await delay(delayMs, undefined, { signal: gone.signal, ref: false }).catch(() => undefined);
}

function toServiceError(error: unknown): Partial<ServiceError> {
  if (error instanceof InjectedFault) return { code: error.code, details: error.message };
  if (error instanceof WorldError) return { code: status.INVALID_ARGUMENT, details: error.message };
  return { code: status.INTERNAL, details: "internal error" };
}
