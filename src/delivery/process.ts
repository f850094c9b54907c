import type { DlqReason } from "../contracts/subjects.js";
import { assertNever } from "../kernel/assert-never.js";
import { oneLine } from "../kernel/errors.js";
import { pause } from "../kernel/time.js";
import { type DeadLetters, letterOf } from "./dead-letter.js";
import type { Context, Delivery, Handler, Outcome } from "./handler.js";
import { crashed, type RetryLimits, verdict } from "./verdict.js";

/** Counts how often the handling of a message was begun; counted before it runs, so that a crash counts. */
export interface Attempts {
  /** Counts one more and returns the sum. */
  begin(delivery: Delivery): Promise<number>;
  /** Takes one back: the attempt was not the message's fault. */
  refund(delivery: Delivery): Promise<void>;
  /** Forgets the message. */
  forget(delivery: Delivery): void;
}

/** What one consumer works with. */
export interface ProcessOptions {
  readonly handler: Handler;
  readonly attempts: Attempts;
  readonly deadLetters: DeadLetters;
  readonly limits: RetryLimits;
  readonly version: string;
  /** Names the event a message carries, for its dead letter. */
  readonly eventOf: (delivery: Delivery) => string;
  readonly observe: (what: "acked" | "retried" | "dead-lettered" | "waited", delivery: Delivery) => void;
}

/**
 * Takes one message to its outcome. It is acked only after the handler
 * returned, or after the DLQ acknowledged the letter. While a server is away
 * it is held here, without being handed out again and without spending an
 * attempt; whoever pulls sees that its slot stays taken.
 */
export function createProcess(options: ProcessOptions): (delivery: Delivery, context: Context) => Promise<Outcome> {
  return async (delivery, context) => {
    for (let waits = 0; ; waits++) {
      const step = await once(options, delivery, context, waits);
      if (step.kind !== "wait") return step;
      options.observe("waited", delivery);
      await pause(step.delayMs, context.stopping);
      if (context.stopping.aborted) return { kind: "release" };
    }
  };
}

type Step = Outcome | { readonly kind: "wait"; readonly delayMs: number };

async function once(options: ProcessOptions, delivery: Delivery, context: Context, waits: number): Promise<Step> {
  const { attempts, limits, observe } = options;
  let attempt = 0;
  try {
    attempt = await attempts.begin(delivery);
    if (attempt > limits.maxAttempts) {
      return await bury(options, delivery, { reason: "crashed", error: crashed(attempt - 1), attempt: attempt - 1 });
    }
    await options.handler(delivery, context);
    attempts.forget(delivery);
    observe("acked", delivery);
    return { kind: "ack" };
  } catch (error) {
    const decided = verdict(error, attempt, waits, limits);
    const fields = { stream: delivery.stream, seq: delivery.seq, attempt, error: oneLine(error) };
    switch (decided.kind) {
      case "wait":
        if (waits === 0) context.log.warn(fields, "a server is away; the message is held");
        if (attempt > 0) await attempts.refund(delivery).catch(() => undefined);
        return decided;
      case "retry":
        context.log.warn({ ...fields, delay_ms: decided.delayMs }, "handling failed; it will be tried again");
        observe("retried", delivery);
        return decided;
      case "dead-letter":
        return await bury(options, delivery, { reason: decided.reason, error, attempt }).catch((failed: unknown) => {
          context.log.error(
            { ...fields, dlq_error: oneLine(failed) },
            "the dead letter could not be stored; the original is kept",
          );
          return { kind: "wait", delayMs: 1_000 } as const;
        });
      default:
        return assertNever(decided);
    }
  }
}

async function bury(
  options: ProcessOptions,
  delivery: Delivery,
  failure: { readonly reason: DlqReason; readonly error: unknown; readonly attempt: number },
): Promise<Outcome> {
  const { reason, error, attempt } = failure;
  const about = { reason, error, event: options.eventOf(delivery), version: options.version, now: Date.now() };
  await options.deadLetters(letterOf(delivery, attempt, about));
  options.attempts.forget(delivery);
  options.observe("dead-lettered", delivery);
  return { kind: "ack" };
}
