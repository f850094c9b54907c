import { randomUUID } from "node:crypto";
import type { DlqReason } from "../contracts/subjects.js";
import { assertNever } from "../kernel/assert-never.js";
import { oneLine } from "../kernel/errors.js";
import { pause, SECOND } from "../kernel/time.js";
import { type DeadLetters, letterOf } from "./dead-letter.js";
import type { Context, Delivery, Handler, Outcome } from "./handler.js";
import { crashed, type RetryLimits, verdict } from "./verdict.js";

/** Counts how often the handling of a message was begun; counted before it runs, so that a crash counts. */
export interface Attempts {
  /** Counts an attempt and returns the sum; one that is counted again under the same name counts once. */
  begin(delivery: Delivery, name: string): Promise<number>;
  /** Takes an attempt back: it was not the message's fault that it failed. */
  refund(delivery: Delivery, name: string): Promise<void>;
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

/** One message in hand. */
interface InHand {
  readonly delivery: Delivery;
  readonly context: Context;
  /** Names this attempt, so that a reply that was lost does not count it twice. */
  readonly name: string;
  /** How often its handling was begun, as far as is known. */
  attempt: number;
  /** How often it has waited for a server in a row. */
  waits: number;
}

type Step = Outcome | { readonly kind: "wait"; readonly delayMs: number };

/**
 * Takes one message to its outcome. It is acked only after the handler
 * returned, or after the DLQ acknowledged the letter. While a server is away
 * it is held here, without being handed out again and without spending an
 * attempt; whoever pulls sees that its slot stays taken.
 */
export function createProcess(options: ProcessOptions): (delivery: Delivery, context: Context) => Promise<Outcome> {
  return async (delivery, context) => {
    const inHand: InHand = { delivery, context, name: randomUUID(), attempt: 0, waits: 0 };
    for (;;) {
      const step = await once(options, inHand);
      if (step.kind !== "wait") return step;
      inHand.waits++;
      options.observe("waited", delivery);
      await pause(step.delayMs, context.stopping);
      if (context.stopping.aborted) return { kind: "release" };
    }
  };
}

async function once(options: ProcessOptions, inHand: InHand): Promise<Step> {
  const { attempts, limits, observe } = options;
  const { delivery, context } = inHand;
  try {
    inHand.attempt = await attempts.begin(delivery, inHand.name);
    if (inHand.attempt > limits.maxAttempts) {
      const spent = inHand.attempt - 1;
      return await bury(options, delivery, { reason: "crashed", error: crashed(spent), attempt: spent });
    }
    await options.handler(delivery, context);
    attempts.forget(delivery);
    observe("acked", delivery);
    return { kind: "ack" };
  } catch (error) {
    return afterFailure(options, inHand, error);
  }
}

async function afterFailure(options: ProcessOptions, inHand: InHand, error: unknown): Promise<Step> {
  const { delivery, context, attempt, waits } = inHand;
  const decided = verdict(error, attempt, waits, options.limits);
  const fields = { stream: delivery.stream, seq: delivery.seq, attempt, error: oneLine(error) };
  switch (decided.kind) {
    case "wait":
      if (waits === 0) context.log.warn(fields, "a server is away; the message is held");
      // Where this fails too, the attempt is counted again under the same name, which changes nothing.
      await options.attempts.refund(delivery, inHand.name).catch(() => undefined);
      return decided;
    case "retry":
      context.log.warn({ ...fields, delay_ms: decided.delayMs }, "handling failed; it will be tried again");
      options.observe("retried", delivery);
      return decided;
    case "dead-letter":
      return bury(options, delivery, { reason: decided.reason, error, attempt }).catch((failed: unknown) => {
        context.log.error(
          { ...fields, dlq_error: oneLine(failed) },
          "the dead letter could not be stored; the original is kept",
        );
        return { kind: "wait", delayMs: SECOND } as const;
      });
    default:
      return assertNever(decided);
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
