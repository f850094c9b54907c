import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { request } from "node:https";
import { isIP } from "node:net";
import { oneLine } from "../../kernel/errors.js";
import { parseUrl } from "../../kernel/urls.js";
import { isPublicAddress } from "./public-addresses.js";
import { createResolve, type Resolve } from "./resolve.js";

/**
 * - `url`: it is not https on port 443, or has a user.
 * - `address`: the host has no address, or one that is not public.
 * - `unreachable`: no whole answer came.
 * - `late`: the answer did not come in time.
 * - `status`: the answer has a status other than 200.
 * - `overload`: the status is 429 or 5xx.
 * - `redirects`: there are too many, one has no valid location, or one leads to another host: that host may not speak
 *   for the first.
 */
export type PublicFault =
  | "url"
  | "address"
  | "unreachable"
  | "late"
  | "status"
  | "overload"
  | "redirects"
  | "encoding"
  | "type"
  | "size";

export type PublicAnswer =
  | { readonly body: Buffer; readonly headers: IncomingHttpHeaders }
  | { readonly fault: PublicFault; readonly detail: string };

export interface PublicFetchOptions {
  /** The time for a whole fetch: names, connections, redirects and the body. */
  readonly timeoutMs: number;
  readonly maxBytes: number;
  readonly maxRedirects: number;
  /** Media types, the preferred ones first. */
  readonly types: readonly string[];
  readonly userAgent: string;
  // Only tests set the options below.
  readonly resolve?: Resolve;
  readonly isPublic?: (address: string) => boolean;
  readonly port?: number;
  readonly ca?: string;
}

const HTTPS_PORT = 443;
const REDIRECTS: ReadonlySet<number | undefined> = new Set([301, 302, 303, 307, 308]);
const MAX_ADDRESSES = 8;

class Fault extends Error {
  constructor(
    readonly fault: PublicFault,
    detail: unknown = "",
  ) {
    super(oneLine(detail));
  }
}

/** Returns the host of a URL that may be fetched, in lower case and without a dot at its end. */
export function publicHostOf(text: string): string | undefined {
  const url = parseUrl(text);
  if (url === undefined || url.protocol !== "https:" || url.port !== "" || url.username + url.password !== "")
    return undefined;
  return url.hostname.replace(/\.$/, "") || undefined;
}

/**
 * Returns a function that fetches from untrusted servers. It checks every address of a host, and connects to one of
 * them. It uses no proxy, which would choose the address, and decompresses nothing.
 */
export function createPublicFetch(options: PublicFetchOptions) {
  return async (url: string): Promise<PublicAnswer> => {
    const ended = new AbortController();
    const timer = setTimeout(() => ended.abort(), options.timeoutMs);
    try {
      const response = await follow(url, { options, signal: ended.signal });
      return { body: await bodyOf(response, options), headers: response.headers };
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      return { fault: ended.signal.aborted ? "late" : error.fault, detail: error.message };
    } finally {
      clearTimeout(timer);
      // This closes a connection that is still open.
      ended.abort();
    }
  };
}

interface Fetch {
  readonly options: PublicFetchOptions;
  readonly signal: AbortSignal;
}

async function follow(first: string, fetch: Fetch): Promise<IncomingMessage> {
  let url = first;
  for (let redirects = 0; redirects <= fetch.options.maxRedirects; redirects++) {
    const host = publicHostOf(url);
    if (host === undefined) throw new Fault("url");
    if (host !== publicHostOf(first)) throw new Fault("redirects", "it leads to another host");
    const response = await ask(new URL(url), await addressesOf(host, fetch), fetch);
    if (!REDIRECTS.has(response.statusCode)) return response;
    response.destroy();
    url = targetOf(response.headers.location, url);
  }
  throw new Fault("redirects");
}

function targetOf(location: string | undefined, base: string): string {
  if (location === undefined) throw new Fault("redirects", "it has no location");
  try {
    return new URL(location, base).href;
  } catch (error) {
    throw new Fault("redirects", error);
  }
}

async function addressesOf(host: string, { options, signal }: Fetch): Promise<readonly string[]> {
  const { resolve = createResolve(), isPublic = isPublicAddress } = options;
  const literal = host.replace(/^\[(.*)\]$/, "$1");
  const addresses =
    isIP(literal) > 0
      ? [literal]
      : await unlessAborted(resolve(host, signal), signal).catch((error: unknown) => {
          throw new Fault("unreachable", error);
        });
  if (addresses.length === 0 || !addresses.every(isPublic)) throw new Fault("address", addresses.join(" "));
  return addresses.slice(0, MAX_ADDRESSES);
}

function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = (): void => reject(new Error("the time is up"));
    if (signal.aborted) late();
    signal.addEventListener("abort", late, { once: true });
    work.then(resolve, reject);
  });
}

/** Resolves once the headers of the answer are read. */
function ask(url: URL, addresses: readonly string[], { options, signal }: Fetch): Promise<IncomingMessage> {
  const { port = HTTPS_PORT, ca, types, userAgent } = options;
  const records = addresses.map((address) => ({ address, family: isIP(address) }));
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  return new Promise((resolve, reject) => {
    const asked = request({
      host,
      port,
      path: `${url.pathname}${url.search}`,
      signal,
      ca,
      headers: { host: url.host, accept: types.join(", "), "accept-encoding": "identity", "user-agent": userAgent },
      servername: isIP(host) > 0 ? "" : host.replace(/\.$/, ""),
      // Each request opens its own connection: a shared one may lead to another address.
      agent: false,
      // NODE_TLS_REJECT_UNAUTHORIZED=0 has no effect here.
      rejectUnauthorized: true,
      // The name is not resolved again: the new addresses would not be checked.
      lookup: (_host, { all }, callback) =>
        all ? callback(null, records) : callback(null, records[0]?.address ?? "", records[0]?.family),
    });
    asked.once("response", resolve).on("error", (error) => reject(new Fault("unreachable", error)));
    // A server that switches protocols gets no connection.
    asked.once("upgrade", (_response, socket) => {
      socket.destroy();
      reject(new Fault("status", "it switches protocols"));
    });
    asked.end();
  });
}

async function bodyOf(response: IncomingMessage, { maxBytes, types }: PublicFetchOptions): Promise<Buffer> {
  const { statusCode = 0, headers } = response;
  if (statusCode === 429 || statusCode >= 500) throw new Fault("overload", statusCode);
  if (statusCode !== 200) throw new Fault("status", statusCode);
  if ((headers["content-encoding"] ?? "identity").toLowerCase() !== "identity") throw new Fault("encoding");
  const type = (headers["content-type"] ?? "").split(";", 1).join("").trim().toLowerCase();
  if (!types.includes(type)) throw new Fault("type");
  const chunks: Buffer[] = [];
  let size = Number(headers["content-length"] ?? 0);
  if (size > maxBytes) throw new Fault("size");
  size = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > maxBytes) throw new Fault("size");
      chunks.push(chunk);
    }
  } catch (error) {
    throw error instanceof Fault ? error : new Fault("unreachable", error);
  }
  return Buffer.concat(chunks);
}
