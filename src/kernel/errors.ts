/**
 * - `invalid`: the input breaks the contract; trying again cannot help.
 * - `poison`: the input is well-formed, but can never be applied.
 * - `unavailable`: a server we depend on is unavailable; the work waits, no attempt is spent.
 * - `failed`: this one piece of work failed; trying again may help, and spends an attempt.
 * - `exhausted`: a bound of ours was reached.
 * - `forbidden`: the caller is known, and may not do this.
 * - `deadline`: the caller's time ran out.
 * - `gone`: the user is erased.
 */
export type ErrorCode =
  | "invalid"
  | "poison"
  | "unavailable"
  | "failed"
  | "unauthenticated"
  | "forbidden"
  | "exhausted"
  | "deadline"
  | "notfound"
  | "conflict"
  | "gone";

interface Presentation {
  readonly grpcStatus: number;
  readonly httpStatus: number;
}

export const PRESENTATION: Readonly<Record<ErrorCode, Presentation>> = {
  invalid: { grpcStatus: 3, httpStatus: 400 },
  poison: { grpcStatus: 9, httpStatus: 422 },
  unavailable: { grpcStatus: 14, httpStatus: 503 },
  failed: { grpcStatus: 13, httpStatus: 500 },
  unauthenticated: { grpcStatus: 16, httpStatus: 401 },
  forbidden: { grpcStatus: 7, httpStatus: 403 },
  exhausted: { grpcStatus: 8, httpStatus: 429 },
  deadline: { grpcStatus: 4, httpStatus: 504 },
  notfound: { grpcStatus: 5, httpStatus: 404 },
  conflict: { grpcStatus: 9, httpStatus: 409 },
  gone: { grpcStatus: 9, httpStatus: 410 },
};

/** `message` and `cause` are for the log. */
export class AppError extends Error {
  override readonly name = "AppError";
  /** Callers get this text: the message, unless it has texts of servers. */
  readonly publicMessage: string;
  /** Time before a new attempt makes sense, ms. */
  readonly retryAfterMs: number | undefined;
  /** The user or author is at fault: calls about others are answered. */
  readonly subject: string | undefined;

  constructor(
    readonly code: ErrorCode,
    message: string,
    options?: {
      readonly cause?: unknown;
      readonly retryAfterMs?: number | undefined;
      readonly publicMessage?: string;
      readonly subject?: string | undefined;
    },
  ) {
    super(message, options);
    this.publicMessage = options?.publicMessage ?? message;
    this.retryAfterMs = options?.retryAfterMs;
    this.subject = options?.subject;
  }
}

export function invalid(field: string, fault: string): AppError {
  return new AppError("invalid", `${field}: ${fault}`);
}

export function codeOf(error: unknown): ErrorCode {
  return error instanceof AppError ? error.code : "failed";
}

/** Returns the user or author without whom the work would have been done. */
export function subjectOf(error: unknown): string | undefined {
  return error instanceof AppError ? error.subject : undefined;
}

/** @throws AppError `unavailable` once the process stops: another one does the work again, or goes on with it */
export function throwIfStopping({ aborted }: AbortSignal, before: string): void {
  if (aborted) throw new AppError("unavailable", `the process stops before ${before}`);
}

const MAX_LINE = 1_024;

export function oneLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  // The text is cut before it is worked on, too: foreign errors may be as long as their input.
  return text
    .slice(0, 2 * MAX_LINE)
    .replaceAll(/[\p{Cc}\s]+/gu, " ")
    .trim()
    .slice(0, MAX_LINE);
}

/** Escapes what would control a terminal. */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => {
    const code = (character.codePointAt(0) as number).toString(16);
    return `\\u{${code}}`;
  });
}

export function assertNever(value: never): never {
  throw new Error(`unhandled case: ${JSON.stringify(value)}`);
}
