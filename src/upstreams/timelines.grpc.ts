import { type ServiceError, status } from "@grpc/grpc-js";
import type { PagedTimeline } from "../contracts/timeline-pages.js";
import {
  type GetListTimelineRequest,
  type GetTimelineResponse,
  TimelineServiceService,
} from "../gen/avion/timeline.js";
import { AppError, type ErrorCode } from "../kernel/errors.js";
import { retryAfterOf } from "../platform/grpc/retry-info.js";
import type { TlsFiles } from "../platform/tls.js";
import { connectUpstream, createCallUpstream } from "./call.grpc.js";

const METHODS = {
  home: TimelineServiceService.getHomeTimeline,
  local: TimelineServiceService.getLocalTimeline,
  global: TimelineServiceService.getGlobalTimeline,
} as const;

/** Codes with which the service refuses a request. */
const REFUSALS: Readonly<Partial<Record<status, ErrorCode>>> = {
  [status.INVALID_ARGUMENT]: "invalid",
  [status.NOT_FOUND]: "notfound",
  [status.RESOURCE_EXHAUSTED]: "exhausted",
  [status.FAILED_PRECONDITION]: "conflict",
  [status.DEADLINE_EXCEEDED]: "unavailable",
};

/**
 * Reads a page of a timeline. Only that of a list has a list_id.
 *
 * @throws AppError `invalid` naming the field, `notfound` if the user has no such list, `exhausted`, `unavailable`, `failed`
 */
export type ReadPage = (name: PagedTimeline, request: GetListTimelineRequest) => Promise<GetTimelineResponse>;

export type CallPositions = ReturnType<typeof connectTimelines>["positions"];

/** Connects to a TimelineService at the first call, and reconnects by itself. */
export function connectTimelines(address: string, tls: TlsFiles) {
  const client = connectUpstream(address, tls);
  const { open } = createCallUpstream(client);
  const calls = { home: open(METHODS.home), local: open(METHODS.local), global: open(METHODS.global) };
  const callList = open(TimelineServiceService.getListTimeline);
  const read: ReadPage = (name, request) => {
    const call = name === "list" ? callList : calls[name];
    return call(request, { subject: request.user_id }).catch((error: unknown) => {
      throw asRefusal(error);
    });
  };
  const about = <Request extends { readonly user_id: string }, Answer>(
    call: (request: Request, about: { readonly subject: string }) => Promise<Answer>,
  ) => {
    return (request: Request): Promise<Answer> =>
      call(request, { subject: request.user_id }).catch((error: unknown) => {
        throw asRefusal(error);
      });
  };
  const positions = {
    list: about(open(TimelineServiceService.getPositions)),
    /** Also rejects with AppError `conflict` if a newer position stands. */
    set: about(open(TimelineServiceService.setPosition)),
  };
  return { read, positions, close: (): void => client.close() };
}

/** Returns the refusal of a request as it was worded, with the time to wait, and any other error as it is. */
export function asRefusal(error: unknown): unknown {
  const { code, details, metadata } = ((error as Error).cause ?? {}) as Partial<ServiceError>;
  const refusal = code === undefined ? undefined : REFUSALS[code];
  if (refusal === undefined) return error;
  return new AppError(refusal, details ?? "", { cause: error, retryAfterMs: metadata && retryAfterOf(metadata) });
}
