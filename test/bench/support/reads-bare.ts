import { type handleUnaryCall, Server, ServerCredentials, type sendUnaryData, status } from "@grpc/grpc-js";
import { Redis } from "ioredis";
import { type GetTimelineRequest, TimelineServiceService } from "../../../src/gen/avion/timeline.js";
import { startTelemetry } from "../../../src/telemetry/exporters.js";
import { counter, histogram } from "../../../src/telemetry/meters.js";
import { READERS, READY_LOCAL_KEY, REPOST_KINDS, responseOf, userOf } from "./reads-shared.js";

type Handler = handleUnaryCall<GetTimelineRequest, Buffer>;

/**
 * A gRPC server whose answers are there as bytes before the first call. With the address of a Redis it asks for that of
 * local, and does what a page of local owes its caller: the bound of the service.
 */
const [redisUrl] = process.argv.slice(2);
if (redisUrl) startTelemetry(process.env, "");

const answered =
  (pageOf: (user: string) => Buffer): Handler =>
  (call, callback) =>
    callback(null, pageOf(call.request.user_id));

const DEFAULT_DEADLINE_MS = 10_000;
const CHECK_MS = 10;

interface Waiting {
  readonly callback: sendUnaryData<Buffer>;
  readonly started: number;
  /** ms since the epoch. */
  readonly deadline: number;
}

/** Asks Redis for bytes that are ready, once for all calls of a turn; measures each call, and answers it by its deadline. */
function asking(redis: Redis): Handler {
  const requests = counter("bare_requests", "Calls");
  const duration = histogram("bare_request_seconds", "Time a call took", [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10]);
  let waiting: Waiting[] = [];
  let isAsking = false;
  const ask = async (): Promise<void> => {
    let calls = waiting;
    waiting = [];
    const refuseLate = setInterval(() => {
      const now = Date.now();
      const isLate = ({ deadline }: Waiting): boolean => deadline <= now;
      for (const { callback } of calls.filter(isLate)) callback({ code: status.DEADLINE_EXCEEDED });
      calls = calls.filter((call) => !isLate(call));
    }, CHECK_MS);
    const page = await redis.getBuffer(READY_LOCAL_KEY);
    clearInterval(refuseLate);
    isAsking = waiting.length > 0;
    if (isAsking) void ask();
    for (const { callback, started } of calls) {
      requests.add(1, { method: "Local", code: "OK" });
      duration.record((performance.now() - started) / 1_000, { method: "Local" });
      callback(null, page);
    }
  };
  return (call, callback) => {
    const deadline = Math.min(Number(call.getDeadline()), Date.now() + DEFAULT_DEADLINE_MS);
    const { limit, max_id, min_id, since_id } = call.request;
    if (limit < 0 || limit > 100 || max_id + min_id + since_id !== "")
      return callback({ code: status.INVALID_ARGUMENT });
    waiting.push({ callback, started: performance.now(), deadline });
    if (isAsking) return;
    isAsking = true;
    setImmediate(() => void ask());
  };
}

const pages = new Map(
  (["Home", ...REPOST_KINDS] as const).flatMap((kind) =>
    Array.from({ length: READERS }, (_, reader) => [userOf(reader, kind), responseOf(kind, reader)] as const),
  ),
);
const [local, global] = [responseOf("Local", 0), responseOf("Global", 0)];
const bytes = <Method extends object>(method: Method) => ({ ...method, responseSerialize: (page: Buffer) => page });

const { getHomeTimeline, getLocalTimeline, getGlobalTimeline } = TimelineServiceService;
const server = new Server();
server.addService(
  {
    getHomeTimeline: bytes(getHomeTimeline),
    getLocalTimeline: bytes(getLocalTimeline),
    getGlobalTimeline: bytes(getGlobalTimeline),
  } as never,
  {
    getHomeTimeline: answered((user) => pages.get(user) as Buffer),
    getLocalTimeline: redisUrl ? asking(new Redis(redisUrl)) : answered(() => local),
    getGlobalTimeline: answered(() => global),
  },
);
server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  process.send?.(port);
});
process.once("disconnect", () => process.exit(0));
