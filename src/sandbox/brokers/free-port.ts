import { randomInt } from "node:crypto";
import { createServer } from "node:net";

// The range is below that of outgoing connections, so a port found free mostly stays free until it is used.
const FIRST_PORT = 20_000;
const LAST_PORT = 32_000;
const TRIES = 50;

/** A loopback port without a listener; the caller retries if another process takes it first. */
export async function freePort(): Promise<number> {
  for (let i = 0; i < TRIES; i += 1) {
    const port = randomInt(FIRST_PORT, LAST_PORT);
    if (await isFree(port)) return port;
  }
  throw new Error(`no free port found between ${FIRST_PORT} and ${LAST_PORT}`);
}

export function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen({ port, host: "127.0.0.1", exclusive: true }, () => server.close(() => resolve(true)));
  });
}
