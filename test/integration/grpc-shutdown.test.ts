import { once } from "node:events";
import { credentials, type ServiceError, status } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { TimelineServiceClient, TimelineServiceService } from "../../src/gen/avion/timeline.js";
import { HealthClient } from "../../src/gen/grpc/health/v1/health.js";
import { ServerReflectionClient } from "../../src/gen/grpc/reflection/v1/reflection.js";
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

async function reflectedServer() {
  const server = await serveGrpc("127.0.0.1:0", [], {});
  const client = new ServerReflectionClient(`127.0.0.1:${server.port}`, credentials.createInsecure());
  const checks = new HealthClient(`127.0.0.1:${server.port}`, credentials.createInsecure());
  const health = (): Promise<void> => new Promise((resolve) => checks.check({ service: "" }, () => resolve()));
  const stream = client.serverReflectionInfo();
  stream.on("error", () => undefined);
  const close = (): void => {
    client.close();
    checks.close();
  };
  return { server, stream, health, close };
}

test("a server that closes ends open reflection streams, and does not wait for their clients", async () => {
  const { server, stream, close } = await reflectedServer();
  try {
    const answered = once(stream, "data");
    stream.write({ host: "", list_services: "" });
    await answered;
    const ended = once(stream, "status");
    await server.close(60_000);
    expect(await ended).toMatchObject([{ code: status.OK }]);
  } finally {
    close();
  }
});

// Invariant 11.
test("a reflection stream reads no more requests while its client takes no answers, and answers them all later", async () => {
  const { server, stream, health, close } = await reflectedServer();
  const total = 400;
  const request = { host: "h".repeat(64 * 1024), list_services: "" };
  let taken = 0;
  const ask = (): void => {
    stream.write(request, () => {
      if (++taken < total) ask();
      else stream.end();
    });
  };
  try {
    // Without it grpc-js would read all answers, and hold them itself.
    stream.read(0);
    ask();
    let before = 0;
    await eventually(async () => {
      const isHeld = taken > 0 && taken === before;
      before = taken;
      for (let n = 0; n < 50; n++) await health();
      return isHeld && taken === before;
    }, "requests are not taken any more");
    expect(taken).toBeLessThan(total / 2);
    let answers = 0;
    stream.on("data", () => void answers++);
    await eventually(() => answers === total, "all are answered");
  } finally {
    close();
    await server.close(0);
  }
});
