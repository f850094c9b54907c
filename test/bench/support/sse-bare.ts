/** The peer of the benchmark `sse`: a bare `http` server that writes the same frames to the same clients. */
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { AUTHORS, type BareRequest, sendRound } from "./sse-shared.js";

const open: { readonly user: string; readonly response: ServerResponse }[] = [];
let seq = 0;

const server = createServer((request, response) => {
  const body = request.headers.authorization?.split(".")[1] ?? "";
  const { sub: user } = JSON.parse(Buffer.from(body, "base64url").toString()) as { sub: string };
  const stream = { user, response };
  open.push(stream);
  response.once("close", () => open.splice(open.indexOf(stream), 1));
  request.socket.setNoDelay(true);
  // As in a gateway: viewers of local and global compare bytes.
  if (!request.url?.endsWith("/home")) response.removeHeader("Transfer-Encoding");
  response.writeHead(200, {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    Connection: "keep-alive",
  });
  response.write("retry: 2500\n: connected\nid: 0-mi9c3k2v\n\n");
});

server.listen(0, "127.0.0.1", () => process.send?.({ port: (server.address() as AddressInfo).port }));

/** Frames have the lengths of those of a gateway. */
const frameOf = (drop: string, listing = ""): string =>
  `id: ${++seq}-mi9c3k2v${listing}\nevent: new_drop\ndata: {"drop_id":"${drop}","created_at":${Date.now()}}\n\n`;

const micros = (): bigint => process.hrtime.bigint() / 1_000n;

async function sendEach({ rounds, roundMs, begin }: BareRequest): Promise<void> {
  for (let round = begin; round < begin + rounds; round++) {
    await sendRound(open.length, roundMs, (n) => {
      const { user, response } = open[n] as (typeof open)[number];
      response.write(frameOf(`${user}.${round}.${micros()}`));
    });
    // Lets the sockets be written to and read from.
    await pause(0);
  }
}

/** Rounds begin at their times, or at once if they are late. */
async function sendShared({ rounds, roundMs, begin }: BareRequest): Promise<void> {
  const started = performance.now();
  for (let round = 0; round < rounds; round++) {
    const frame = frameOf(`author${round % AUTHORS}.${begin + round}.${micros()}`, "-shared");
    for (const { response } of open) response.write(frame);
    await pause(Math.max(0, started + (round + 1) * roundMs - performance.now()));
  }
}

process.on("message", (request: BareRequest) => {
  void (request.isShared ? sendShared(request) : sendEach(request));
});
