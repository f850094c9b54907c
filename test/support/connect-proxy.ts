import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";

/** An HTTP proxy that tunnels, as companies run them. */
export interface ConnectProxy {
  readonly url: string;
  /** host:port of each tunnel asked for. */
  readonly targets: string[];
  /** Answers 502 to whoever asks for a tunnel. */
  refuse(refusing: boolean): void;
  stop(): Promise<void>;
}

export async function startConnectProxy(): Promise<ConnectProxy> {
  const targets: string[] = [];
  const sockets = new Set<Socket>();
  let refusing = false;
  const server = createServer((_request, response) => response.writeHead(405).end());
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket)).on("error", () => undefined);
  });
  server.on("connect", ({ url = "" }, client: Socket) => {
    targets.push(url);
    if (refusing) return void client.end("HTTP/1.1 502 Bad Gateway\r\n\r\n");
    const [host = "", port] = url.split(":");
    const upstream = connect(Number(port), host, () => {
      client.write("HTTP/1.1 200 Connection Established\r\n\r\n");
      upstream.pipe(client).pipe(upstream);
    });
    sockets.add(upstream);
    upstream.on("error", () => client.destroy()).once("close", () => sockets.delete(upstream));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    targets,
    refuse: (now) => {
      refusing = now;
    },
    stop: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
