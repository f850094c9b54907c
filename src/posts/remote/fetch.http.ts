import { MINUTE, SECOND } from "../../kernel/time.js";
import { createPublicFetch, type PublicFetchOptions, publicHostOf } from "../../platform/http/public-fetch.js";
import type { Fetcher } from "./fetch.js";

const TIMEOUT_MS = 10 * SECOND;
const MAX_BYTES = 1_024 * 1_024;
const MAX_REDIRECTS = 3;
const TYPES = ["application/activity+json", "application/ld+json", "application/json"];
/** Shorter lifetimes are raised to this, so that no server is asked more often. */
const MIN_AGE_S = (5 * MINUTE) / SECOND;

/** `userAgent` names this server to others. */
export function createFetcher(options: Pick<PublicFetchOptions, "userAgent"> & Partial<PublicFetchOptions>): Fetcher {
  const bounds = { timeoutMs: TIMEOUT_MS, maxBytes: MAX_BYTES, maxRedirects: MAX_REDIRECTS, types: TYPES };
  const publicFetch = createPublicFetch({ ...bounds, ...options });
  return {
    hostOf: publicHostOf,
    fetch: async (uri) => {
      const answer = await publicFetch(uri);
      if ("fault" in answer) return answer;
      const document = textOf(answer.body);
      if (document === undefined) return { fault: "json", detail: "it is not UTF-8" };
      return { document, maxAgeS: maxAgeOf(answer.headers["cache-control"]) };
    },
  };
}

function textOf(body: Buffer): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    return undefined;
  }
}

/** Returns the lifetime in seconds; 0 if the server names none. */
function maxAgeOf(cacheControl = ""): number {
  if (/\bno-(store|cache)\b/i.test(cacheControl)) return MIN_AGE_S;
  const [, seconds] = /\bmax-age="?(\d{1,9})\b/i.exec(cacheControl) ?? [];
  return seconds === undefined ? 0 : Math.max(MIN_AGE_S, Number(seconds));
}
