import { randomUUID } from "node:crypto";
import type { DlqReason } from "../contracts/subjects.js";
import { assertNever } from "../kernel/assert-never.js";
import { oneLine } from "../kernel/errors.js";
import { failpoint, leftOut } from "../kernel/failpoints.js";
import { pause, SECOND } from "../kernel/time.js";
import { type DeadLetters, letterOf } from "./dead-letter.js";
import type { Gate } from "./gate.js";
import type { Context, Delivery, Handler, Outcome } from "./handler.js";
import { crashed, type RetryLimits, verdict } from "./verdict.js";

/** What is known of a message's attempts. */
export interface Begun {
  /** How many there were, this one included. */
  readonly count: number;
  /** How many of the others never reported back: the process ended under them, or still has them in hand. */
  readonly lost: number;
}

/** Counts how often the handling of a message was begun; counted before it runs, so that a crash counts. */
export interface Attempts {
  /** Counts an attempt; one that is counted again under the same name counts once. */
  begin(delivery: Delivery, name: string): Promise<Begun>;
  /** Notes that an attempt failed: it reported back, and took no process along. */
  fail(delivery: Delivery, name: string): Promise<void>;
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
  /** Shared by all that is handled in this process. */
  readonly gate: Gate;
  readonly version: string;
  /** Names the event a message carries, for its dead letter. */
  readonly eventOf: (delivery: Delivery) => string;
  readonly observe: (what: Observed, delivery: Delivery) => void;
}

type Observed = "acked" | "retried" | "dead-lettered" | "letter-refused" | "waited";

/** One message in hand. */
interface InHand {
  readonly delivery: Delivery;
  readonly context: Context;
  /** Names this attempt, so that a reply that was lost does not count it twice. */
  readonly name: string;
  /** By the clock of `performance`, ms. */
  readonly taken: number;
  /** How often its handling was begun, as far as is known. */
  attempt: number;
  /** How often it has waited for a server in a row. */
  waits: number;
  /** Whether it is handled while nothing else is. */
  alone: boolean;
}

type Step = Outcome | { readonly kind: "wait"; readonly delayMs: number } | { readonly kind: "alone" };

/**
 * Takes one message to its outcome. It is acked only after the handler
 * returned, or after the DLQ acknowledged the letter. While a server is away
 * it is held here, without being handed out again and without spending an
 * attempt; whoever pulls sees that its slot stays taken. What may have ended a
 * process before is handled alone, so that it takes no neighbour along.
 */
export function createProcess(options: ProcessOptions): (delivery: Delivery, context: Context) => Promise<Outcome> {
  return async (delivery, context) => {
    const inHand: InHand = {
      delivery,
      context,
      name: randomUUID(),
      taken: performance.now(),
      attempt: 0,
      waits: 0,
      alone: false,
    };
    for (;;) {
      const step = await once(options, inHand);
      if (step.kind === "alone") {
        inHand.alone = true;
        continue;
      }
      if (step.kind !== "wait") return step;
      inHand.waits++;
      ended(options, inHand, "waited");
      await pause(step.delayMs, context.stopping);
      if (context.stopping.aborted) return { kind: "release" };
    }
  };
}

async function once(options: ProcessOptions, inHand: InHand): Promise<Step> {
  const { attempts, limits } = options;
  const { delivery, context } = inHand;
  const leave = await options.gate.enter(inHand.alone);
  try {
    if (inHand.alone && context.stopping.aborted) return { kind: "release" };
    const begun = await attempts.begin(delivery, inHand.name);
    inHand.attempt = begun.count;
    if (begun.lost > 0 && !inHand.alone) {
      await attempts.refund(delivery, inHand.name);
      return { kind: "alone" };
    }
    if (inHand.attempt > limits.maxAttempts) {
      const spent = inHand.attempt - 1;
      return await bury(options, inHand, { reason: "crashed", error: crashed(spent), attempt: spent });
    }
    await failpoint("handle", delivery.body);
    await options.handler(delivery, context);
    await failpoint("handled", delivery.body);
    attempts.forget(delivery);
    ended(options, inHand, "acked");
    return { kind: "ack" };
  } catch (error) {
    return await afterFailure(options, inHand, error);
  } finally {
    leave();
  }
}

async function afterFailure(options: ProcessOptions, inHand: InHand, error: unknown): Promise<Step> {
  const { delivery, context, attempt, waits } = inHand;
  const judged = leftOut("refund") ? new Error(oneLine(error)) : error;
  const decided = verdict(judged, attempt, waits, options.limits);
  const fields = { stream: delivery.stream, seq: delivery.seq, attempt, error: oneLine(error) };
  switch (decided.kind) {
    case "wait":
      if (waits === 0) context.log.warn(fields, "a server is away; the message is held");
      // Where this fails too, the attempt is counted again under the same name, which changes nothing.
      await options.attempts.refund(delivery, inHand.name).catch(() => undefined);
      return decided;
    case "retry":
      await options.attempts.fail(delivery, inHand.name).catch(() => undefined);
      context.log.warn({ ...fields, delay_ms: decided.delayMs }, "handling failed; it will be tried again");
      ended(options, inHand, "retried");
      return decided;
    case "dead-letter":
      return bury(options, inHand, { reason: decided.reason, error, attempt }).catch((failed: unknown) => {
        context.log.error(
          { ...fields, dlq_error: oneLine(failed) },
          "the dead letter could not be stored; the original is kept",
        );
        ended(options, inHand, "letter-refused");
        return { kind: "wait", delayMs: SECOND } as const;
      });
    default:
      return assertNever(decided);
  }
}

async function bury(
  options: ProcessOptions,
  inHand: InHand,
  failure: { readonly reason: DlqReason; readonly error: unknown; readonly attempt: number },
): Promise<Outcome> {
  const { reason, error, attempt } = failure;
  const { delivery, context } = inHand;
  const about = { reason, error, event: options.eventOf(delivery), version: options.version, now: Date.now() };
  await failpoint("bury", delivery.body);
  await options.deadLetters(letterOf(delivery, attempt, about));
  await failpoint("buried", delivery.body);
  options.attempts.forget(delivery);
  context.log.warn({ ...fieldsOf(inHand), reason, error: oneLine(error) }, "a message is dead-lettered");
  ended(options, inHand, "dead-lettered");
  return { kind: "ack" };
}

const fieldsOf = ({ delivery: { stream, consumer, seq, subject }, attempt }: InHand): object => {
  return { stream, consumer, seq, subject, attempt };
};

/** Counts and logs what became of one handling. */
function ended(options: ProcessOptions, inHand: InHand, outcome: Observed): void {
  options.observe(outcome, inHand.delivery);
  const duration_ms = Math.round(performance.now() - inHand.taken);
  inHand.context.log.debug({ ...fieldsOf(inHand), outcome, duration_ms }, "an event is handled");
}
