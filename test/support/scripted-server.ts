import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** Answers one request. */
export type Step = (response: ServerResponse, request: IncomingMessage) => void;

export interface ScriptedServer {
  readonly url: string;
  /** The requests so far: what they asked for, their headers, and when they came by performance.now(). */
  readonly requests: readonly {
    readonly url: string;
    readonly headers: IncomingMessage["headers"];
    readonly atMs: number;
  }[];
  close(): Promise<void>;
}

/** An HTTP server that answers its requests by the steps, one after the other, and the last of them again and again. */
export async function scriptedServer(...steps: readonly Step[]): Promise<ScriptedServer> {
  const requests: Array<ScriptedServer["requests"][number]> = [];
  const server = createServer((request, response) => {
    requests.push({ url: request.url ?? "", headers: request.headers, atMs: performance.now() });
    steps[Math.min(requests.length, steps.length) - 1]?.(response, request);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** Answers JSON. */
export const json =
  (status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): Step =>
  (response) => {
    const kind = status < 400 ? "application/json" : "application/problem+json";
    response.writeHead(status, { "Content-Type": kind, ...headers }).end(JSON.stringify(body));
  };

/** Answers an event stream that stays open, or ends with its text. */
export const events =
  (text: string, { ends = false } = {}): Step =>
  (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" }).write(text);
    if (ends) response.end();
  };
