import { AppError, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";

/**
 * A server turns a connection away for what this process is configured with: a password, a certificate, a right it
 * lacks. Work waits as in an outage; waiting alone does not mend it, so the start ends with it and `/readyz` shows it.
 */
export class Refusal extends AppError {
  constructor(message: string, options?: { cause?: unknown }) {
    super("unavailable", message, options);
  }
}

/** Codes of Node and OpenSSL about certificates and protocol; EPROTO is a server that does not speak TLS. */
const TLS_CODE =
  /^(EPROTO$|ERR_TLS_|ERR_SSL_|ERR_OSSL_|CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE)/;

/** True for an error by which TLS failed, and not the network below it. */
export function isTlsFault(error: unknown): boolean {
  return TLS_CODE.test((error as { code?: string } | undefined)?.code ?? "");
}

const refusals = new WeakMap<object, Refusal>();

/** Why a connection is turned away now; undefined where it is not. */
export const refusalOf = (connection: object): Refusal | undefined => refusals.get(connection);

/** Takes note that a connection is turned away, or no longer is; said once each. */
export function noteRefusal(connection: object, refusal: Refusal | undefined, log: Logger): void {
  const before = refusals.get(connection);
  if (refusal === undefined) {
    refusals.delete(connection);
    return;
  }
  refusals.set(connection, refusal);
  if (before?.message !== refusal.message)
    log.error({ error: oneLine(refusal) }, "a server turns this process away; work waits until that is mended");
}
