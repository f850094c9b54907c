import {
  decodeProtectedHeader,
  errors,
  type JWTPayload,
  type JWTVerifyGetKey,
  type JWTVerifyOptions,
  jwtVerify,
} from "jose";
import { AppError, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { startLoop } from "../kernel/loop.js";
import { SingleFlight } from "../kernel/sharing.js";
import { type Clock, DAY, MINUTE, pause, SECOND } from "../kernel/time.js";
import { fetchKeySet, type KeySet } from "../platform/http/key-set.js";
import { observeGateway } from "./observe.js";

interface KeysOptions {
  readonly url: string;
  /** Time for which keys stay valid after the server last returned them. */
  readonly maxAgeMs?: number;
  readonly log: Logger;
  readonly refreshMs?: number;
  /** Minimum time between the beginnings of two requests to the key server. */
  readonly leastMs?: number;
  readonly now?: Clock;
}

/** Resolves to the claims of a valid token. */
export type VerifyToken = (token: string, options: JWTVerifyOptions) => Promise<JWTPayload>;

/** Bounds the work for a token that names no key. A rotation needs two. */
const MAX_KEYS_TRIED = 16;

const FAILED = "the keys that sign access tokens cannot be fetched";

/**
 * Keeps the keys of a server. They are fetched beside the tokens, so that a server that hangs or is away costs a token
 * of a known key nothing. A token whose key is unknown waits for a request that began after it came: its issuer may
 * have published the key just now. So does a token that names no key and is signed by none of those known.
 */
export function followKeys(options: KeysOptions) {
  const { url, maxAgeMs = DAY, log, refreshMs = 5 * MINUTE, leastMs = SECOND } = options;
  const now = options.now ?? (() => performance.now());
  let known: KeySet | undefined;
  /** `asked` is when the last request began, `answered` when the last one that was answered began. */
  let asked = Number.NEGATIVE_INFINITY;
  let answered = Number.NEGATIVE_INFINITY;
  let away = false;

  const ask = async (): Promise<void> => {
    if (asked + leastMs > now()) await pause(asked + leastMs - now());
    const began = now();
    asked = began;
    try {
      known = await fetchKeySet(url);
      answered = began;
      if (away) log.info({}, "the keys that sign access tokens are fetched again");
      away = false;
    } catch (error) {
      const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
      if (!away) log.warn({ error: oneLine(cause), known: known !== undefined }, FAILED);
      away = true;
      throw new AppError("unavailable", FAILED, { cause: error });
    }
  };
  const flight = new SingleFlight<void>();
  const refresh = (): Promise<void> => flight.run(url, ask);
  const usable = (): boolean => known !== undefined && now() - answered < maxAgeMs;

  const find: JWTVerifyGetKey = async (header, token) => {
    while (!usable()) await refresh();
    return (known as KeySet).find(header, token);
  };
  /** @throws AppError `unavailable` if the key is not known and its server does not answer */
  const verify: VerifyToken = async (token, options) => {
    const came = now();
    for (;;) {
      try {
        return await verifyByAny(token, find, options);
      } catch (error) {
        if (!isOfUnknownKey(error, token) || answered >= came) throw error;
        await refresh();
      }
    }
  };

  const started = now();
  observeGateway.keys(() => (now() - Math.max(answered, started)) / SECOND);
  const loop = startLoop({
    work: refresh,
    everyMs: refreshMs,
    jitter: true,
    backoffCapMs: 30 * SECOND,
    // A process that stops does not wait for a request under way.
    closeMs: SECOND / 10,
  });
  return {
    verify,
    /** Returns the reason if no token can be checked. */
    notReady: () => (usable() ? undefined : FAILED),
    close: () => loop.close(),
  };
}

/** A token without `kid` may be signed by any key of its algorithm. */
async function verifyByAny(token: string, find: JWTVerifyGetKey, options: JWTVerifyOptions): Promise<JWTPayload> {
  try {
    return (await jwtVerify(token, find, options)).payload;
  } catch (error) {
    if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error;
    let tried = 0;
    for await (const key of error) {
      if (tried++ === MAX_KEYS_TRIED) break;
      try {
        return (await jwtVerify(token, key, options)).payload;
      } catch (refusal) {
        if (!(refusal instanceof errors.JWSSignatureVerificationFailed)) throw refusal;
      }
    }
    throw new errors.JWSSignatureVerificationFailed();
  }
}

function isOfUnknownKey(error: unknown, token: string): boolean {
  if (error instanceof errors.JWKSNoMatchingKey) return true;
  return error instanceof errors.JWSSignatureVerificationFailed && decodeProtectedHeader(token).kid === undefined;
}
