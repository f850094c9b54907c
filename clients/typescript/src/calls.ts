import { bounded } from "./bounded.js";
import { delayOf, pause } from "./delay.js";
import { asError, errorOf, TimelineError } from "./errors.js";
import type { Send } from "./send.js";

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

interface Call extends CallOptions {
  readonly method?: "GET" | "POST";
  /** A list is separated by commas. */
  readonly query?: Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

const MAX_TRIES = 3;
const TIMEOUT_MS = 30_000;
/** A call whose server names a longer time fails at once, and says the time. */
const MAX_WAIT_MS = 10_000;

/**
 * Calls a route that may be called twice, and returns its JSON. A call that gets no answer within 30 seconds, or a
 * temporary refusal, is tried three times in all, after delays. Rejects with a TimelineError, or with the signal's reason.
 */
export async function call<Answer>(send: Send, path: string, options: Call = {}): Promise<Answer> {
  for (let failures = 0; ; failures++) {
    try {
      return (await bounded({ signal: options.signal, ms: TIMEOUT_MS }, (signal) =>
        answerOf(send, path, { ...options, signal }),
      )) as Answer;
    } catch (thrown) {
      options.signal?.throwIfAborted();
      const error = asError(thrown);
      const delayMs = delayOf(failures, error.retryAfterMs ?? 0);
      if (error.isFinal || failures + 1 >= MAX_TRIES || (error.retryAfterMs ?? 0) > MAX_WAIT_MS) throw error;
      await pause(delayMs, options.signal);
    }
  }
}

async function answerOf(send: Send, path: string, call: Call & { readonly signal: AbortSignal }): Promise<unknown> {
  const { method = "GET", body, query = {}, headers, signal } = call;
  const given = Object.entries(query).filter(([, value]) => String(value ?? "") !== "");
  const text = new URLSearchParams(given as [string, string][]).toString();
  const response = await send(text === "" ? path : `${path}?${text}`, {
    method,
    signal,
    headers: {
      accept: "application/json",
      ...headers,
      ...(body !== undefined && { "content-type": "application/json" }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw await errorOf(response);
  if (response.status === 204) return undefined;
  return response.json().catch((cause: unknown) => {
    throw new TimelineError("the answer is no JSON", { cause });
  });
}
