import type { XRPCError } from "@atproto/api";
import { oneLine } from "../../kernel/errors.js";
import { TooManyRequests, Unreachable } from "./bounded-fetch.js";
import { AccountGone } from "./source.js";

// AppViews name these cases themselves, pass on what the server of an account says, or only describe them.
const GONE = [
  {
    code: "account_suspended",
    name: /^(Account|Actor|Did|Profile|Repo|User)(Takedown|Taken[dD]own|Suspended|Deactivated)$/,
    message: /^(account|repo|profile) (has been|is|was) (suspended|taken ?down|deactivated)/i,
  },
  {
    code: "account_unknown",
    name: /^(Account|Actor|Did|Profile|Repo|User)NotFound$/,
    message: /^((account|repo|profile|actor) not found|could not (find|resolve) |unable to resolve )/i,
  },
] as const;
/** Of other requests these names say nothing about the account. */
const DESCRIBED = /^(InvalidRequest|NotFound)$/;

/** The library wraps errors of fetch; of an answer it makes one with the name and the message that the answer has. */
export function reasonOf(error: unknown): Error {
  const { cause, status, error: name, message } = error as XRPCError;
  if (cause instanceof Unreachable || cause instanceof TooManyRequests) return cause;
  const gone =
    status >= 400 &&
    status < 500 &&
    GONE.find((known) => known.name.test(name) || (DESCRIBED.test(name) && known.message.test(message)));
  if (gone) return new AccountGone(gone.code, oneLine(message));
  const detail = cause instanceof Error && cause.message !== message ? `: ${cause.message}` : "";
  return new Error(oneLine(`${name}: ${message}${detail}`), { cause: error });
}

/** Below it are the library's own: no answer, and one that breaks the lexicon. */
const LEAST_STATUS = 100;

/** A label: an HTTP status, or why there is none. */
export function resultOf(error: unknown): string {
  const { status, cause } = error as XRPCError;
  if (status >= LEAST_STATUS) return String(status);
  if (cause instanceof Unreachable) return "unreachable";
  return (cause as Error | undefined)?.name === "TimeoutError" ? "timeout" : "broken";
}
