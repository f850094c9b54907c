import { AppError, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";

/**
 * A server rejects our password, certificate or rights, or takes only small messages. The start ends with it; later work
 * waits as in an outage.
 */
export class Refusal extends AppError {
  /** An operator does this, unless it is the user, the password or the certificate that is wrong. */
  readonly advice: string | undefined;

  constructor(
    message: string,
    options: { readonly cause?: unknown; readonly publicMessage: string; readonly advice?: string },
  ) {
    super("unavailable", message, options);
    this.advice = options.advice;
  }
}

/** Advises an operator: after a refusal it does not help to start the server. */
export const adviceOn = (error: unknown, otherwise: string): string =>
  error instanceof Refusal ? (error.advice ?? "correct the user, the password or the certificate") : otherwise;

/** EPROTO is a server that does not speak TLS. */
const TLS_CODE =
  /^(EPROTO$|ERR_TLS_|ERR_SSL_|ERR_OSSL_|CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE)/;

export function isTlsFault(error: unknown): boolean {
  return TLS_CODE.test((error as { code?: string } | undefined)?.code ?? "");
}

const refusals = new WeakMap<object, Refusal>();

export const refusalOf = (connection: object): Refusal | undefined => refusals.get(connection);

/** Logs each change once. */
export function noteRefusal(connection: object, refusal: Refusal | undefined, log: Logger): void {
  const before = refusals.get(connection);
  if (refusal === undefined) {
    refusals.delete(connection);
    return;
  }
  refusals.set(connection, refusal);
  if (before?.message !== refusal.message)
    log.error(
      { error: oneLine(refusal) },
      "a server refuses this process (password, certificate or permission); work waits",
    );
}
