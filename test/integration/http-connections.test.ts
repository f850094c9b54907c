import { once } from "node:events";
import { Agent, type IncomingMessage, request } from "node:http";
import { connect } from "node:net";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { serveGrpc } from "../../src/platform/grpc/serve.js";
import { type HttpServer, serveHttp } from "../../src/platform/http/serve.js";
import { eventually } from "../support/eventually.js";

let server: HttpServer;

const serve = (): Promise<HttpServer> =>
  serveHttp({
    ...{ address: "127.0.0.1:0", notReady: () => [], log: silent },
    metrics: (_request, response) => void response.end(),
  });

beforeAll(async () => {
  server = await serve();
});

afterAll(() => server.close(0));

/** A client that sees every byte. */
async function dial(port: number) {
  const socket = connect(port, "127.0.0.1");
  let [text, isOver] = ["", false];
  socket.on("data", (part: Buffer) => (text += part.toString()));
  socket.on("error", () => undefined);
  socket.once("close", () => (isOver = true));
  await once(socket, "connect");
  const asks = async (): Promise<void> => {
    socket.write("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    await eventually(() => text.includes('{"status":"ok"}'), "an answer");
  };
  return { socket, asks, text: () => text, isOver: () => isOver };
}

test("an idle connection is kept for longer than proxies keep theirs", async () => {
  const client = await dial(server.port);
  await client.asks();
  expect(client.text()).toMatch(/^Keep-Alive: timeout=75\r$/m);
  client.socket.destroy();
});

test("an idle connection is kept for as long as the setting says", async () => {
  const patient = await serveHttp({ address: "127.0.0.1:0", keepAliveMs: 620_000, log: silent });
  const client = await dial(patient.port);
  await client.asks();
  expect(client.text()).toMatch(/^Keep-Alive: timeout=620\r$/m);
  client.socket.destroy();
  await patient.close(0);
});

test("0.0.0.0 takes connections over IPv6 and IPv4, for HTTP and gRPC", async () => {
  const everywhere = await serveHttp({ address: "0.0.0.0:0", log: silent });
  const grpc = await serveGrpc("0.0.0.0:0", [], {});
  for (const host of ["127.0.0.1", "::1"]) {
    for (const { port } of [everywhere, grpc]) {
      const socket = connect(port, host);
      await once(socket, "connect");
      socket.destroy();
    }
  }
  await Promise.all([everywhere.close(0), grpc.close(0)]);
});

test("a server that drains refuses connections at once, and ends the open ones with their next answer", async () => {
  const draining = await serve();
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  /** Returns the status, the header, and the client's port. */
  const ask = async (): Promise<unknown[]> => {
    const asking = request({ port: draining.port, path: "/healthz", agent }).end();
    const [answer] = (await once(asking, "response")) as [IncomingMessage];
    const seen = [answer.statusCode, answer.headers.connection, answer.socket.localPort];
    await once(answer.resume(), "end");
    return seen;
  };
  const client = await dial(draining.port);
  await client.asks();
  const [status, connection, port] = await ask();
  expect([status, connection]).toEqual([200, "keep-alive"]);
  draining.stopListening();
  await expect(dial(draining.port)).rejects.toMatchObject({ code: "ECONNREFUSED" });
  expect(await ask()).toEqual([200, "close", port]);
  await expect(ask()).rejects.toMatchObject({ code: "ECONNREFUSED" });
  expect(client.isOver()).toBe(false);
  await draining.close(60_000);
  await eventually(() => client.isOver(), "the connection without a request is ended");
});
