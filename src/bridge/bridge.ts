import { LRUCache } from "lru-cache";
import {
  EVENT_NAMES,
  type EventName,
  messageId,
  parseEvent,
  SUBJECT_OF,
  type TimelineEvent,
} from "../contracts/events.js";
import type { DlqReason } from "../contracts/subjects.js";
import { deadLetterOfUnstored } from "../delivery/dead-letter.js";
import { contextOf, inSpan, SpanKind, traceHeaders } from "../delivery/telemetry.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { fingerprint } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { backoff, pause, SECOND } from "../kernel/time.js";
import type { Channels } from "./channels.redis.js";
import type { HeldDeadLetters } from "./held-dead-letters.js";

interface IntakeDeps {
  readonly channels: Channels;
  readonly forward: (channel: EventName, payload: Uint8Array) => Promise<void>;
  readonly requestReconcile: RequestReconcile;
  readonly log: Logger;
  readonly observe: { inFlight(change: number): void; refused(channel: EventName): void };
}

const MAX_IN_FLIGHT = 8_192;
const MAX_IN_FLIGHT_BYTES = 64 * 1024 * 1024;

export interface Intake {
  healthy(): boolean;
  close(graceMs: number): Promise<void>;
}

/**
 * Forwards every payload of the channels. At a bound of payloads in flight the connection is not read on: Redis holds
 * what follows in its own buffer, and closes the connection when that is full.
 */
export async function startIntake({ channels, forward, requestReconcile, log, observe }: IntakeDeps): Promise<Intake> {
  const inFlight = new Set<Promise<void>>();
  let bytes = 0;
  let held = false;
  const full = (): boolean => inFlight.size >= MAX_IN_FLIGHT || bytes >= MAX_IN_FLIGHT_BYTES;
  const take = (channel: EventName, payload: Uint8Array): void => {
    if (full() && !held) held = channels.hold(true);
    // A source that cannot be held back hands on what it has read; past twice the bound that is lost, and counted.
    if (inFlight.size >= 2 * MAX_IN_FLIGHT || bytes >= 2 * MAX_IN_FLIGHT_BYTES) {
      requestReconcile(Date.now(), "overflow");
      return observe.refused(channel);
    }
    bytes += payload.byteLength;
    observe.inFlight(1);
    const forwarding = forward(channel, payload).finally(() => {
      inFlight.delete(forwarding);
      bytes -= payload.byteLength;
      observe.inFlight(-1);
      if (held && !full()) held = !channels.hold(false);
    });
    inFlight.add(forwarding);
  };
  await channels.subscribe(EVENT_NAMES, take, (since) => requestReconcile(since, "reconnect"));
  log.info({ channels: EVENT_NAMES }, "bridging Redis Pub/Sub into JetStream");
  return {
    healthy: () => channels.healthy(),
    close: async (graceMs) => {
      await channels.unsubscribe();
      await Promise.race([Promise.all(inFlight), pause(graceMs)]);
      if (inFlight.size > 0) log.error({ count: inFlight.size }, "events were not admitted before the end");
    },
  };
}

type Admit = (event: {
  readonly subject: string;
  readonly id: string;
  readonly body: Uint8Array;
  readonly headers: Readonly<Record<string, string>>;
}) => Promise<{ readonly duplicate: boolean }>;

/** Asks for events since `since` (ms since the epoch) to be looked up in the upstreams: some may have been lost. */
export type RequestReconcile = (since: number, cause: "start" | "reconnect" | "gap" | "overflow") => void;

export interface ForwardDeps {
  readonly admit: Admit;
  readonly deadLetters: Pick<HeldDeadLetters, "take">;
  readonly server: { readonly info?: { readonly max_payload: number } | undefined };
  readonly requestReconcile: RequestReconcile;
  readonly version: string;
  readonly log: Logger;
  readonly observe: (outcome: Outcome, channel: EventName) => void;
}

type Outcome = "admitted" | "duplicate" | "invalid" | "toolarge" | "refused";

interface Arrived {
  readonly channel: EventName;
  readonly payload: Uint8Array;
  /** In ms since the epoch. */
  readonly arrival: number;
}

const DEFAULT_MAX_MESSAGE_BYTES = 1024 * 1024;
/** Bytes of a message that are not its payload: headers, above all those of a dead letter. */
const HEADER_ROOM = 16 * 1024;
const MAX_PRODUCERS = 10_000;

/**
 * Stores a payload of a channel in the log, or in the DLQ where it cannot be understood; tries until one of them has
 * acknowledged it, so that an outage of NATS loses nothing that has arrived here.
 */
export function createForward(deps: ForwardDeps): (channel: EventName, payload: Uint8Array) => Promise<void> {
  const withGaps = { ...deps, gaps: new Gaps() };
  return async (channel, payload) => {
    const arrived = { channel, payload, arrival: Date.now() };
    for (let attempt = 1; ; attempt++) {
      try {
        return await forwardOnce(withGaps, arrived);
      } catch (error) {
        if (attempt === 1)
          deps.log.warn(
            { channel, error: oneLine(error) },
            "an event could not be admitted yet; it is kept and tried again",
          );
        await pause(backoff(attempt, SECOND / 10, 2 * SECOND));
      }
    }
  };
}

async function forwardOnce(deps: ForwardDeps & { readonly gaps: Gaps }, arrived: Arrived): Promise<void> {
  const { channel, payload, arrival } = arrived;
  const most = (deps.server.info?.max_payload ?? DEFAULT_MAX_MESSAGE_BYTES) - HEADER_ROOM;
  if (payload.byteLength > most) {
    const error = new AppError("invalid", `payload: has ${payload.byteLength} bytes, more than a message can carry`);
    return deadLetter(deps, arrived, { reason: "toolarge", error });
  }
  await failpoint("bridge-received", payload);
  let event: TimelineEvent;
  try {
    event = parseEvent(channel, payload, arrival);
  } catch (error) {
    if (codeOf(error) !== "invalid") throw error;
    return deadLetter(deps, arrived, { reason: "invalid", error });
  }
  const { producer, seq } = event.payload;
  if (producer !== undefined && seq !== undefined) {
    const since = deps.gaps.note(producer, seq, arrival);
    if (since !== undefined) deps.requestReconcile(since, "gap");
  }
  await inSpan(`receive ${channel}`, { kind: SpanKind.CONSUMER, ...parentOf(event) }, () => admit(deps, event));
}

async function admit(deps: ForwardDeps, event: TimelineEvent): Promise<void> {
  const stored = await deps.admit({
    subject: SUBJECT_OF[event.name],
    id: messageId(event),
    body: Buffer.from(JSON.stringify(event.payload)),
    headers: traceHeaders(),
  });
  await failpoint("bridge-admitted", messageId(event));
  deps.observe(stored.duplicate ? "duplicate" : "admitted", event.name);
}

function parentOf({ payload: { traceparent } }: TimelineEvent): { parent?: ReturnType<typeof contextOf> } {
  if (traceparent === undefined) return {};
  const get = (name: string): string | undefined => (name === "traceparent" ? traceparent : undefined);
  return { parent: contextOf({ get, entries: () => [["traceparent", traceparent]] }) };
}

async function deadLetter(
  deps: ForwardDeps,
  { channel, payload, arrival }: Arrived,
  failure: { reason: DlqReason & Outcome; error: unknown },
): Promise<void> {
  // Several bridges receive the same bytes and write one dead letter.
  const id = `dlq:${channel}:${fingerprint(payload)}`;
  const letter = deadLetterOfUnstored(
    { id, origin: channel, body: payload, deliveries: 1, firstSeen: arrival },
    { ...failure, event: channel, version: deps.version, now: arrival },
  );
  const taken = await deps.deadLetters.take(letter);
  deps.observe(taken === "refused" ? "refused" : failure.reason, channel);
  if (taken === "stored")
    deps.log.warn({ channel, reason: failure.reason, error: oneLine(failure.error) }, "a payload was dead-lettered");
}

export class Gaps {
  readonly #latest = new LRUCache<string, { readonly seq: number; readonly at: number }>({ max: MAX_PRODUCERS });

  /** @returns the time of the last number before a gap, in ms since the epoch; undefined where nothing is missing */
  note(producer: string, seq: number, now: number): number | undefined {
    const last = this.#latest.get(producer);
    // A producer that starts anew counts from the beginning; any other lower number came late or twice.
    if (last && seq <= last.seq && seq > 1) return undefined;
    this.#latest.set(producer, { seq, at: now });
    return last && seq > last.seq + 1 ? last.at : undefined;
  }
}
