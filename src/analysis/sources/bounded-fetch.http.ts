import { connect } from "node:net";
import { oneLine } from "../../kernel/errors.js";
import { DAY, MINUTE, SECOND } from "../../kernel/time.js";
import { parseServerUrl } from "../../kernel/urls.js";
import { createOutboundFetch, refusedByProxy, usesProxy } from "../../platform/http/outbound.js";

/** A hundred posts with all they embed take less than 1 MiB. */
const MAX_ANSWER_BYTES = 5 * 1024 * 1024;

/** Nothing listens there, or its name or certificate is wrong. */
export class Unreachable extends Error {}

/** The answer arrived and cannot be used. */
export class Unreadable extends Error {}

export class TooManyRequests extends Error {
  constructor(readonly waitMs: number) {
    super(`the source asks for a pause of ${Math.ceil(waitMs / SECOND)} s`);
  }
}

/**
 * Redirects are refused: they could lead into a private network. @throws Unreachable; TooManyRequests; Unreadable;
 * Error for any other answer that cannot be used
 */
export function createBoundedFetch(origin: string) {
  const outboundFetch = createOutboundFetch();
  return async (path: string, init: RequestInit): Promise<Response> => {
    const response = await outboundFetch(new URL(path, origin), { ...init, redirect: "manual" }).catch((error) =>
      failed(origin, error),
    );
    const { status, headers } = response;
    const isRedirect = status >= 300 && status < 400;
    if (isRedirect || status === 429) await response.body?.cancel();
    if (isRedirect) throw new Error(`HTTP ${status}: redirects are not followed`);
    if (status === 429) throw new TooManyRequests(pauseOf(headers));
    const body = await bodyOf(response).catch((error) => cutOff(origin, error));
    return new Response(body, { status, headers });
  };
}

async function bodyOf({ body }: Response): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  // Leaving the loop ends the connection.
  for await (const chunk of body ?? []) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) throw new Unreadable(`the answer has more than ${MAX_ANSWER_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** The connection was made, and no whole answer came over it. */
const CUT_OFF = /^(ECONNRESET|EPIPE|HPE_|UND_ERR_(?!CONNECT_TIMEOUT))/;

async function failed(origin: string, error: unknown): Promise<never> {
  const { name, cause } = error as { readonly name?: string; readonly cause?: { readonly code?: string } };
  const isConnected = name === "TimeoutError" || (CUT_OFF.test(cause?.code ?? "") && !refusedByProxy(cause));
  if (isConnected) return cutOff(origin, error);
  throw name === "AbortError" ? error : unreachable(error);
}

/** A server that ends takes its connections with it. */
async function cutOff(origin: string, error: unknown): Promise<never> {
  throw error instanceof Unreadable || (await accepts(origin)) ? error : unreachable(error);
}

function unreachable(error: unknown): Unreachable {
  return new Unreachable(oneLine((error as { readonly cause?: unknown }).cause ?? error), { cause: error });
}

/** Tells a server that is gone from one that fails for one account. Behind a proxy that cannot be told: others' calls do. */
async function accepts(origin: string): Promise<boolean> {
  if (usesProxy()) return true;
  const { host, port } = parseServerUrl(origin);
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: SECOND });
    const end = (accepted: boolean) => (): void => {
      socket.destroy();
      resolve(accepted);
    };
    socket.once("connect", end(true)).once("timeout", end(false)).once("error", end(false));
  });
}

const PAUSE_MS = MINUTE;
/** Larger numbers of seconds are a time since 1970, as the AT Protocol sends them; the IETF draft sends a duration. */
const LEAST_EPOCH_SECONDS = 1e9;

/** Reads the pause from Retry-After or RateLimit-Reset, by the clock of the server. */
function pauseOf(headers: Headers): number {
  const now = Date.parse(headers.get("date") ?? "") || Date.now();
  const pauses = ["retry-after", "ratelimit-reset"].map((name) => {
    const value = headers.get(name) ?? "";
    if (!/^\d+$/.test(value)) return Date.parse(value) - now;
    return Number(value) * SECOND - (Number(value) > LEAST_EPOCH_SECONDS ? now : 0);
  });
  const pause = pauses.find((ms) => !Number.isNaN(ms)) ?? PAUSE_MS;
  return Math.min(DAY, Math.max(SECOND, pause));
}
