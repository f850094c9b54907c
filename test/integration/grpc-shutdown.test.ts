import { credentials, type ServiceError } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { TimelineServiceClient, TimelineServiceService } from "../../src/gen/avion/timeline.js";
import { serveGrpc } from "../../src/platform/grpc/serve.js";
import { eventually } from "../support/eventually.js";

test("a server that closes ends calls that outlast its grace", async () => {
  let begun = 0;
  const hang = (): void => void begun++;
  const implementation = { getHomeTimeline: hang, getLocalTimeline: hang, getGlobalTimeline: hang };
  const service = { name: "avion.TimelineService", definition: TimelineServiceService, implementation };
  const server = await serveGrpc("127.0.0.1:0", [service], {});
  const client = new TimelineServiceClient(`127.0.0.1:${server.port}`, credentials.createInsecure());
  try {
    const ended = new Promise<ServiceError | null>((resolve) => {
      client.getHomeTimeline({ user_id: "ada", limit: 0, since_id: "", max_id: "", min_id: "" }, resolve);
    });
    await eventually(async () => begun === 1, "the call has begun");
    await server.close(100);
    expect(await ended).toMatchObject({ message: expect.any(String) });
  } finally {
    client.close();
  }
});
