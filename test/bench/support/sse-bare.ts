/** The peer of the benchmark `sse`: a bare `http` server that writes the same frames to the same clients. */
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { type BareRequest, sendRound } from "./sse-shared.js";

const open: { readonly user: string; readonly response: ServerResponse }[] = [];
let seq = 0;

const server = createServer((request, response) => {
  const body = request.headers.authorization?.split(".")[1] ?? "";
  const { sub: user } = JSON.parse(Buffer.from(body, "base64url").toString()) as { sub: string };
  const stream = { user, response };
  open.push(stream);
  response.once("close", () => open.splice(open.indexOf(stream), 1));
  request.socket.setNoDelay(true);
  response.writeHead(200, {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    Connection: "keep-alive",
  });
  response.write("retry: 2500\n: connected\nid: 0-mi9c3k2v\n\n");
});

server.listen(0, "127.0.0.1", () => process.send?.({ port: (server.address() as AddressInfo).port }));

process.on("message", ({ rounds, roundMs, begin }: BareRequest) => {
  void (async () => {
    for (let round = begin; round < begin + rounds; round++) {
      await sendRound(open.length, roundMs, (n) => {
        const { user, response } = open[n] as (typeof open)[number];
        const drop = `${user}.${round}.${process.hrtime.bigint() / 1_000n}`;
        response.write(
          `id: ${++seq}-mi9c3k2v\nevent: new_drop\ndata: {"drop_id":"${drop}","created_at":${Date.now()}}\n\n`,
        );
      });
      // Lets the sockets be written to and read from.
      await pause(0);
    }
  })();
});
