import { type handleUnaryCall, Server, ServerCredentials } from "@grpc/grpc-js";
import { type GetTimelineRequest, TimelineServiceService } from "../../../src/gen/avion/timeline.js";
import { READERS, responseOf, userOf } from "./reads-shared.js";

/** A gRPC server whose answers are there as bytes before the first call. */
const pages = new Map(
  Array.from({ length: READERS }, (_, reader) => [userOf(reader), responseOf("Home", reader)] as const),
);
const [local, global] = [responseOf("Local", 0), responseOf("Global", 0)];

const answered =
  (pageOf: (user: string) => Buffer): handleUnaryCall<GetTimelineRequest, Buffer> =>
  (call, callback) =>
    callback(null, pageOf(call.request.user_id));
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
    getLocalTimeline: answered(() => local),
    getGlobalTimeline: answered(() => global),
  },
);
server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  process.send?.(port);
});
process.once("disconnect", () => process.exit(0));
