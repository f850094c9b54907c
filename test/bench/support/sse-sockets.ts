/** Bare sockets that read event streams. */
import { createHmac } from "node:crypto";
import { connect, type Socket } from "node:net";
import { JWT_SECRET } from "../../support/service.js";

const AT_ONCE = 128;

export interface Opening {
  readonly port: number;
  /** Numbers of the users, the last one excluded. */
  readonly from: number;
  readonly to: number;
}

type Take = (bytes: Buffer) => void;

/** Opens a stream for each user. `opened` returns the reader of the bytes after its greeting. Resolves to seconds. */
export async function openAll(
  { port, from, to }: Opening,
  pathOf: (number: number) => string,
  opened: (number: number, socket: Socket) => Take,
): Promise<number> {
  // Signed before, so that only opening counts.
  const requests = Array.from({ length: to - from }, (_, n) => requestOf(`u${from + n}`, pathOf(from + n)));
  const started = performance.now();
  let next = 0;
  const lane = async (): Promise<void> => {
    for (let n = next++; n < requests.length; n = next++)
      await openOne(port, requests[n] as string, (socket) => opened(from + n, socket));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
  return (performance.now() - started) / 1_000;
}

/** All sockets read into it, since their bytes are looked at once. */
const buffer = Buffer.alloc(64 * 1024);

function openOne(port: number, request: string, opened: (socket: Socket) => Take): Promise<void> {
  return new Promise((resolve, reject) => {
    let head = "";
    let take: Take | undefined;
    const callback = (count: number): boolean => {
      const bytes = buffer.subarray(0, count);
      if (take) take(bytes);
      else head += bytes.toString("latin1");
      if (take || !head.includes("\n\n")) return true;
      take = opened(socket);
      if (head.startsWith("HTTP/1.1 200 ")) resolve();
      else reject(new Error(head));
      head = "";
      return true;
    };
    const socket = connect({ port, host: "127.0.0.1", noDelay: true, onread: { buffer, callback } });
    socket.once("error", reject);
    socket.write(request, "latin1");
  });
}

const requestOf = (user: string, path: string): string =>
  `GET ${path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer ${tokenOf(user)}\r\n\r\n`;

function tokenOf(user: string): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const text = `${part({ alg: "HS256", typ: "JWT" })}.${part({ sub: user, exp: Math.floor(Date.now() / 1_000) + 3_600 })}`;
  return `${text}.${createHmac("sha256", JWT_SECRET).update(text).digest("base64url")}`;
}

export async function closeSockets(sockets: readonly Socket[]): Promise<void> {
  await Promise.all(
    sockets.map((socket) => {
      const closed = new Promise((resolve) => socket.once("close", resolve));
      socket.destroy();
      return closed;
    }),
  );
}
