import { readFileSync } from "node:fs";
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { isPublicAddress } from "../../src/platform/http/public-addresses.js";
import type { PublicFetchOptions } from "../../src/platform/http/public-fetch.js";
import { makeCertificates } from "./certificates.js";

/** The certificate is valid for this name and for names below it. */
const HOST = "elsewhere.example";
const ADDRESS = "127.0.0.1";
export const ACTIVITY = "application/activity+json";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** An untrusted server that answers each path as a test says. Its URLs have the port of https. */
export type HostileServer = {
  /** Answers the URL of a new path, on a host below that of the certificate where one is named. */
  add(answer: Answer, below?: string): string;
  /** Answers the URL of a new document, which has that URL as its id. */
  document(fields: object, headers?: Readonly<Record<string, string>>): string;
  /** Requests for a URL so far. */
  asked(url: string): number;
  /** The addresses of some names; all other names have that of the server. */
  readonly names: Map<string, readonly string[]>;
  /** The names resolved so far. */
  readonly resolved: string[];
  /** Options with which a fetch reaches the server. */
  readonly seam: Required<Pick<PublicFetchOptions, "resolve" | "isPublic" | "port" | "ca">>;
  stop(): Promise<void>;
};

export const json =
  (content: unknown, headers: Readonly<Record<string, string>> = {}): Answer =>
  (_request, response) =>
    void response.writeHead(200, { "content-type": ACTIVITY, ...headers }).end(JSON.stringify(content));

export const redirect =
  (location: string, status = 302): Answer =>
  (_request, response) =>
    void response.writeHead(status, { location }).end();

export async function startHostileServer(): Promise<HostileServer> {
  const certificates = makeCertificates();
  const { cert, key } = certificates.elsewhere;
  const answers = new Map<string, Answer>();
  const counts = new Map<string, number>();
  const names = new Map<string, readonly string[]>();
  const resolved: string[] = [];
  let made = 0;
  const listener: RequestListener = (request, response) => {
    const url = `https://${request.headers.host}${request.url}`;
    counts.set(url, (counts.get(url) ?? 0) + 1);
    const answer = answers.get(url);
    if (answer) answer(request, response);
    else response.writeHead(404).end();
  };
  const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, listener);
  await new Promise<void>((resolve) => server.listen(0, ADDRESS, resolve));
  const add: HostileServer["add"] = (answer, below) => {
    const url = `https://${below === undefined ? "" : `${below}.`}${HOST}/${++made}`;
    answers.set(url, answer);
    return url;
  };
  return {
    add,
    document: (fields, headers) => {
      const url = add(() => undefined);
      answers.set(url, json({ ...fields, id: url }, headers));
      return url;
    },
    asked: (url) => counts.get(url) ?? 0,
    names,
    resolved,
    seam: {
      resolve: async (host) => {
        resolved.push(host);
        return names.get(host) ?? [ADDRESS];
      },
      isPublic: (address) => address === ADDRESS || isPublicAddress(address),
      port: (server.address() as AddressInfo).port,
      ca: readFileSync(certificates.ca, "utf8"),
    },
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      certificates.remove();
    },
  };
}
