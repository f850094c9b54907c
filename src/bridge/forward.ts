import { type EventName, messageId, parseEvent, SUBJECT_OF, type TimelineEvent } from "../contracts/events.js";
import type { DlqReason } from "../contracts/subjects.js";
import { letterOfUnstored } from "../delivery/dead-letter.js";
import { contextOf, inSpan, SpanKind, traceHeaders } from "../delivery/traced.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { fingerprint } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { backoff, pause, SECOND } from "../kernel/time.js";
import type { HeldLetters } from "./held-letters.js";

/** Admits an event to the log; resolves after its PubAck, to whether it had been admitted before. */
export type Admit = (event: {
  readonly subject: string;
  readonly id: string;
  readonly body: Uint8Array;
  readonly headers: Readonly<Record<string, string>>;
}) => Promise<{ readonly duplicate: boolean }>;

/** What the bridge works with. */
export interface ForwardDeps {
  readonly admit: Admit;
  readonly letters: Pick<HeldLetters, "take">;
  /** Bytes of a payload a message can carry. */
  readonly maxPayloadBytes: () => number;
  /** Told of each event that is numbered by its producer. */
  readonly numbered: (producer: string, seq: number) => void;
  readonly version: string;
  readonly log: Logger;
  readonly observe: (what: "admitted" | "duplicate" | "invalid" | "toolarge" | "refused", channel: EventName) => void;
}

/**
 * Takes one payload from a channel into the log, or into the DLQ where it
 * cannot be understood. It is tried until one of them has acknowledged it: an
 * outage of NATS loses nothing that has arrived here. A DLQ that takes no
 * letters is no outage: see {@link HeldLetters}.
 */
export function createForward(deps: ForwardDeps): (channel: EventName, payload: Uint8Array) => Promise<void> {
  return async (channel, payload) => {
    const arrival = Date.now();
    for (let attempt = 1; ; attempt++) {
      try {
        await forwardOnce(deps, { channel, payload, arrival });
        return;
      } catch (error) {
        if (attempt === 1)
          deps.log.warn(
            { channel, error: oneLine(error) },
            "an event could not be admitted yet; it is kept and tried again",
          );
        await pause(backoff(attempt, 100, 2 * SECOND));
      }
    }
  };
}

interface Arrived {
  readonly channel: EventName;
  readonly payload: Uint8Array;
  /** In ms since the epoch. */
  readonly arrival: number;
}

async function forwardOnce(deps: ForwardDeps, arrived: Arrived): Promise<void> {
  const { channel, payload, arrival } = arrived;
  if (payload.byteLength > deps.maxPayloadBytes()) return bury(deps, arrived, tooLarge(payload));
  await failpoint("bridge-received", payload);
  let event: TimelineEvent;
  try {
    event = parseEvent(channel, payload, arrival);
  } catch (error) {
    if (codeOf(error) !== "invalid") throw error;
    return bury(deps, arrived, { reason: "invalid", error });
  }
  const { producer, seq } = event.payload;
  if (producer !== undefined && seq !== undefined) deps.numbered(producer, seq);
  await inSpan(`receive ${channel}`, { kind: SpanKind.CONSUMER, ...parentOf(event) }, () =>
    admit(deps, channel, event),
  );
}

async function admit({ admit: store, observe }: ForwardDeps, channel: EventName, event: TimelineEvent): Promise<void> {
  const stored = await store({
    subject: SUBJECT_OF[channel],
    id: messageId(event),
    body: Buffer.from(JSON.stringify(event.payload)),
    headers: traceHeaders(),
  });
  await failpoint("bridge-admitted", messageId(event));
  observe(stored.duplicate ? "duplicate" : "admitted", channel);
}

/** Continues the producer's trace where the payload names it. */
function parentOf({ payload }: TimelineEvent): { parent?: ReturnType<typeof contextOf> } {
  const { traceparent } = payload;
  if (traceparent === undefined) return {};
  return {
    parent: contextOf({
      get: (name) => (name === "traceparent" ? traceparent : undefined),
      entries: () => [["traceparent", traceparent]],
    }),
  };
}

function tooLarge(payload: Uint8Array): { reason: DlqReason; error: AppError } {
  return {
    reason: "toolarge",
    error: new AppError("invalid", `payload: has ${payload.byteLength} bytes, more than a message can carry`),
  };
}

async function bury(
  deps: ForwardDeps,
  arrived: Arrived,
  failure: { reason: DlqReason; error: unknown },
): Promise<void> {
  const { channel, payload, arrival } = arrived;
  // Several bridges receive the same bytes and write one letter.
  const id = `dlq:${channel}:${fingerprint(payload)}`;
  const letter = letterOfUnstored(
    { id, origin: channel, body: payload, deliveries: 1, firstSeen: arrival },
    { ...failure, event: channel, version: deps.version, now: arrival },
  );
  const fate = await deps.letters.take(letter);
  if (fate === "refused") return deps.observe("refused", channel);
  deps.observe(failure.reason === "toolarge" ? "toolarge" : "invalid", channel);
  if (fate === "stored")
    deps.log.warn({ channel, reason: failure.reason, error: oneLine(failure.error) }, "a payload was dead-lettered");
}
