import { randomUUID } from "node:crypto";
import pLimit from "p-limit";
import type { DlqEvent, DlqReason } from "../contracts/subjects.js";
import { assertNever, oneLine, subjectOf } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { pause, SECOND, sharedNow } from "../kernel/time.js";
import { inTraceOf } from "../telemetry/spans.js";
import { deadLetterOf, type StoreDeadLetter } from "./dead-letter.js";
import type { BatchHandler, Context, Delivery, DeliveryOutcome, Handler, Process, ProcessBatch } from "./handler.js";
import { crashed, type RetryLimits, Returns, verdict } from "./verdict.js";

export interface AttemptCount {
  readonly count: number;
  /** Number of other attempts that never reported back: their process ended, or is still at work. */
  readonly lost: number;
  /** Some of those ran beside other messages; `lost` counts them as one. */
  readonly beside: number;
}

/** Counts attempts before they run, so that a crash counts. */
export interface Attempts {
  begin(delivery: Delivery, name: string, alone: boolean): Promise<AttemptCount>;
  /** The attempt reported back, and did not end its process. */
  fail(delivery: Delivery, name: string): Promise<void>;
  /** The message was not at fault for the failure, so the attempt does not count. */
  refund(delivery: Delivery, name: string): Promise<void>;
  forget(delivery: Delivery): void;
}

/** Notes the messages that are in the queue only because a single user is unavailable. */
export interface WaitingMessages {
  /** The caller awaits this before the message goes back. */
  note(delivery: Delivery, delayMs: number): Promise<void>;
  /** The caller awaits this before it handles the message again: no noted message is applied, or being applied. */
  remove(delivery: Pick<Delivery, "consumer" | "seq">): Promise<void>;
}

/**
 * One at a time of the messages that may have ended a process holds this lock. It is given in the order of the calls.
 */
export class SuspectLock {
  readonly #limit = pLimit(1);

  /** Resolves with a function that gives it up; later calls of that do nothing. */
  acquire(): Promise<() => void> {
    return new Promise((acquired) => void this.#limit(() => new Promise<void>((release) => acquired(release))));
  }
}

interface ProcessOptions {
  readonly handler: Handler;
  readonly attempts: Attempts;
  readonly storeDeadLetter: StoreDeadLetter;
  readonly limits: RetryLimits;
  readonly waiting?: WaitingMessages | undefined;
  /** All consumers of the process share this lock. */
  readonly suspectLock: SuspectLock;
  readonly version: string;
  readonly eventOf: (delivery: Delivery) => DlqEvent;
  readonly observe: (what: Observed, delivery: Delivery, count?: number) => void;
  /** First deliveries are handled in batches, and not counted. */
  readonly batched?: boolean;
}

type Observed = "acked" | "retried" | "dead-lettered" | "dead-letter-refused" | "waited";

interface InFlight {
  readonly delivery: Delivery;
  readonly context: Context;
  /** Names the attempt, so that a lost reply does not count it twice. */
  readonly name: string;
  readonly startedAt: number;
  attempt: number;
  waits: number;
  alone: boolean;
}

type Step = DeliveryOutcome | { readonly kind: "wait"; readonly delayMs: number } | { readonly kind: "alone" };

/** A suspect is begun alone for so long: what kills its process mostly does so at once. */
const ALONE_MS = 50;
/** A message stays alone longer for each process that ended beside other messages: this also finds one that kills slowly. */
const ALONE_GROWTH = 4;
const MAX_GROWTHS = 8;

/**
 * A message is acked only after the handler returned, or after the DLQ acknowledged its dead letter. While a server is
 * unavailable the message keeps its slot of the consumer, and spends no attempt. If only the subject of the message is
 * unavailable, the message goes back to the queue, since others can be handled in the slot.
 */
export function createProcess(options: ProcessOptions): Process {
  const withReturns: Options = { ...options, returns: new Returns() };
  return (delivery, context) => inTraceOf(delivery.headers, () => untilOutcome(withReturns, delivery, context));
}

interface Options extends ProcessOptions {
  readonly returns: Returns;
}

type BatchOptions = Pick<ProcessOptions, "observe"> & { readonly handler: BatchHandler };

/** Handles first deliveries together, uncounted. Those of a batch that fails are to be processed one by one. */
export function createBatchProcess({ handler, observe }: BatchOptions): ProcessBatch {
  const processBatch: ProcessBatch = async (deliveries, context) => {
    const started = performance.now();
    try {
      const bodies = deliveries.map(({ body }) => body);
      await failpoint("handle", ...bodies);
      const rest = await handler(deliveries, context);
      await failpoint("handled", ...bodies);
      const done = rest.length === 0 ? deliveries : deliveries.filter((delivery) => !rest.includes(delivery));
      if (done[0]) observe("acked", done[0], done.length);
      if (context.log.isLevelEnabled("debug")) for (const delivery of done) logHandled(delivery, context, started);
      return rest;
    } catch (error) {
      const { length } = deliveries;
      context.log.debug({ messages: length, error: oneLine(error) }, "a batch failed; its messages are handled alone");
      return deliveries;
    }
  };
  return processBatch;
}

function logHandled(delivery: Delivery, context: Context, started: number): void {
  const duration_ms = Math.round(performance.now() - started);
  const { stream, consumer, seq, subject, headers } = delivery;
  const fields = { stream, consumer, seq, subject, attempt: 1, outcome: "acked", duration_ms };
  inTraceOf(headers, () => context.log.debug(fields, "an event is handled"));
}

async function untilOutcome(options: Options, delivery: Delivery, context: Context): Promise<DeliveryOutcome> {
  const startedAt = performance.now();
  const message: InFlight = { delivery, context, name: randomUUID(), startedAt, attempt: 0, waits: 0, alone: false };
  for (;;) {
    const step = await once(options, message);
    if (step.kind === "alone") {
      message.alone = true;
      continue;
    }
    if (step.kind !== "wait") return step;
    message.waits++;
    ended(options, message, "waited");
    await pause(step.delayMs, context.stopping);
    if (context.stopping.aborted) return { kind: "release" };
  }
}

async function once(options: Options, message: InFlight): Promise<Step> {
  const { attempts, limits } = options;
  const { delivery, context } = message;
  const release = message.alone ? await options.suspectLock.acquire() : undefined;
  let isAloneNoMore = async (): Promise<void> => undefined;
  try {
    if (release && context.stopping.aborted) return { kind: "release" };
    if (delivery.deliveries > 1) await options.waiting?.remove(delivery);
    const begun = await attempts.begin(delivery, message.name, message.alone);
    message.attempt = begun.count;
    if (begun.lost > 0 && !message.alone) return { kind: "alone" };
    // If a counted attempt did not end, the first delivery, which was in a batch and not counted, did not end either.
    const lost = begun.lost + (options.batched && begun.lost > 0 && delivery.deliveries > 1 ? 1 : 0);
    if (message.attempt > limits.maxAttempts || lost >= limits.maxAttempts) {
      const spent = Math.max(message.attempt - 1, lost);
      return await deadLetter(options, message, { reason: "crashed", error: crashed(spent), attempt: spent });
    }
    if (release) isAloneNoMore = aloneFor(aloneMs(begun), options, { message, release });
    await failpoint("handle", delivery.body);
    await options.handler(delivery, { ...context, attempt: message.attempt });
    await failpoint("handled", delivery.body);
    await isAloneNoMore();
    attempts.forget(delivery);
    ended(options, message, "acked");
    return { kind: "ack" };
  } catch (error) {
    await isAloneNoMore();
    return await afterFailure(options, message, error);
  } finally {
    release?.();
  }
}

const aloneMs = ({ beside }: AttemptCount): number => ALONE_MS * ALONE_GROWTH ** Math.min(beside, MAX_GROWTHS);

/**
 * Gives the lock up after `ms`: a message that waits for a server, or plans a huge fan-out, holds up no other suspect. From
 * then on the attempt counts as one beside others. Returns what ends this.
 */
function aloneFor(
  ms: number,
  { attempts }: Options,
  { message, release }: { readonly message: InFlight; readonly release: () => void },
): () => Promise<void> {
  let noted: Promise<unknown> | undefined;
  const timer = setTimeout(() => {
    noted = attempts
      .begin(message.delivery, message.name, false)
      .catch(() => undefined)
      .finally(release);
  }, ms);
  return async () => {
    clearTimeout(timer);
    await noted;
  };
}

async function afterFailure(options: Options, message: InFlight, error: unknown): Promise<Step> {
  const { delivery, context, attempt, waits } = message;
  const { deliveries } = delivery;
  const decided = verdict(error, { attempt, waits, deliveries }, options.limits);
  const fields = { stream: delivery.stream, seq: delivery.seq, attempt, error: oneLine(error) };
  switch (decided.kind) {
    case "wait":
      if (waits === 0) context.log.warn(fields, "a server is unavailable; the message is held");
      // If this fails too, the same name is counted again, which changes nothing.
      await options.attempts.refund(delivery, message.name).catch(() => undefined);
      return decided;
    case "return":
      return returned(options, message, { error, delayMs: decided.delayMs });
    case "retry":
      await options.attempts.fail(delivery, message.name).catch(() => undefined);
      context.log.warn({ ...fields, delay_ms: decided.delayMs }, "handling failed; it will be tried again");
      ended(options, message, "retried");
      return decided;
    case "dead-letter":
      return deadLetter(options, message, { reason: decided.reason, error, attempt }).catch((failed: unknown) => {
        context.log.error(
          { ...fields, dlq_error: oneLine(failed) },
          "the dead letter could not be stored; the original is kept",
        );
        ended(options, message, "dead-letter-refused");
        return { kind: "wait", delayMs: SECOND } as const;
      });
    default:
      return assertNever(decided);
  }
}

async function returned(
  options: Options,
  message: InFlight,
  { error, delayMs }: { readonly error: unknown; readonly delayMs: number },
): Promise<Step> {
  const { delivery, context } = message;
  const backAfterMs = options.returns.delayMs(subjectOf(error) ?? "", delayMs);
  try {
    await options.attempts.refund(delivery, message.name);
    await options.waiting?.note(delivery, backAfterMs);
  } catch {
    // A repeated call under another name would count the attempt.
    return { kind: "wait", delayMs: SECOND };
  }
  const fields = { ...fieldsOf(message), error: oneLine(error) };
  if (delivery.deliveries === 1) context.log.warn(fields, "a user is unavailable; the message goes back to the queue");
  ended(options, message, "waited");
  return { kind: "retry", delayMs: backAfterMs };
}

async function deadLetter(
  options: Options,
  message: InFlight,
  failure: { readonly reason: DlqReason; readonly error: unknown; readonly attempt: number },
): Promise<DeliveryOutcome> {
  const { reason, error, attempt } = failure;
  const { delivery, context } = message;
  const about = { reason, error, event: options.eventOf(delivery), version: options.version, now: sharedNow() };
  await failpoint("dead-letter", delivery.body);
  await options.storeDeadLetter(deadLetterOf(delivery, attempt, about));
  await failpoint("dead-lettered", delivery.body);
  options.attempts.forget(delivery);
  context.log.warn({ ...fieldsOf(message), reason, error: oneLine(error) }, "a message is dead-lettered");
  ended(options, message, "dead-lettered");
  return { kind: "ack" };
}

const fieldsOf = ({ delivery: { stream, consumer, seq, subject }, attempt }: InFlight): object => {
  return { stream, consumer, seq, subject, attempt };
};

function ended(options: Options, message: InFlight, outcome: Observed): void {
  options.observe(outcome, message.delivery);
  const duration_ms = Math.round(performance.now() - message.startedAt);
  message.context.log.debug({ ...fieldsOf(message), outcome, duration_ms }, "an event is handled");
}
