import { createCache } from "../contracts/caches.js";
import {
  CHANNELS,
  type Channel,
  type PublishedEvent,
  parsePublished,
  publishedId,
  subjectOf,
} from "../contracts/channels.js";
import { HEADER_ROOM } from "../contracts/fanout.js";
import { deadLetterOfUnstored } from "../delivery/dead-letter.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { fingerprint } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { backoff, type ClockReading, pause, SECOND, sharedNow, wallTimeOf } from "../kernel/time.js";
import type { NamesErased } from "../state/index.js";
import { contextOf, type OpenSpan, openSpan, SpanKind } from "../telemetry/spans.js";
import type { Channels } from "./channels.redis.js";
import type { HeldDeadLetters } from "./held-dead-letters.js";
import type { Forwarded } from "./observe.js";

export interface Arrived {
  readonly channel: Channel;
  readonly payload: Uint8Array;
  /** The time is in ms since the epoch. */
  readonly arrival: number;
  /** Arrival may be long after publication: Redis keeps events while the connection is not read on. */
  readonly publishedAfter: ClockReading;
}

/** Resolves once every payload is stored; `settled` is called as soon as some are, with how many and their bytes. */
export type Forward = (batch: readonly Arrived[], settled: (handled: readonly Arrived[]) => void) => Promise<void>;

interface IntakeDeps {
  readonly channels: Channels;
  readonly forward: Forward;
  readonly requestReconcile: RequestReconcile;
  readonly log: Logger;
  readonly observe: { inFlight(change: number): void; refused(channel: Channel): void };
}

const MAX_IN_FLIGHT = 2_048;
const MAX_IN_FLIGHT_BYTES = 64 * 1024 * 1024;

export interface Intake {
  healthy(): boolean;
  close(graceMs: number): Promise<void>;
}

/**
 * Forwards every payload of the channels; those that are read at once go together. At a bound of payloads in flight the
 * connection is not read on: Redis holds what follows in its own buffer, and closes the connection when that is full.
 */
export async function startIntake({ channels, forward, requestReconcile, log, observe }: IntakeDeps): Promise<Intake> {
  let idle = (): void => undefined;
  let batch: Arrived[] = [];
  let [count, bytes] = [0, 0];
  let paused = false;
  const full = (): boolean => count >= MAX_IN_FLIGHT || bytes >= MAX_IN_FLIGHT_BYTES;
  const settled = (handled: readonly Arrived[]): void => {
    count -= handled.length;
    for (const { payload } of handled) bytes -= payload.byteLength;
    observe.inFlight(-handled.length);
    if (paused && !full()) paused = !channels.setPaused(false);
    if (count === 0) idle();
  };
  const send = (): void => {
    void forward(batch, settled);
    observe.inFlight(batch.length);
    batch = [];
  };
  const take = (channel: Channel, payload: Uint8Array, publishedAfter: ClockReading): void => {
    if (full() && !paused) paused = channels.setPaused(true);
    // A source that cannot be paused passes on what it has read. Beyond twice the bound payloads are lost, and counted.
    if (count >= 2 * MAX_IN_FLIGHT || bytes >= 2 * MAX_IN_FLIGHT_BYTES) {
      requestReconcile(wallTimeOf(publishedAfter), "overflow");
      return observe.refused(channel);
    }
    count += 1;
    bytes += payload.byteLength;
    if (batch.push({ channel, payload, arrival: sharedNow(), publishedAfter }) === 1) setImmediate(send);
  };
  await channels.subscribe(CHANNELS, take, (since) => requestReconcile(since, "reconnect"));
  log.info({ channels: CHANNELS }, "bridging Redis Pub/Sub into JetStream");
  return {
    healthy: () => channels.healthy(),
    close: async (graceMs) => {
      await channels.unsubscribe();
      const forwarded = new Promise<void>((resolve) => {
        idle = resolve;
      });
      if (count > 0) await Promise.race([forwarded, pause(graceMs)]);
      if (count > 0) log.error({ count }, "events were not admitted before the end");
    },
  };
}

interface Admission {
  readonly subject: string;
  readonly id: string;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Answers for each event whether it was stored before, or why it is not stored. */
type AdmitAll = (events: readonly Admission[]) => Promise<readonly ({ readonly duplicate: boolean } | AppError)[]>;

/** Asks for events since `since` (ms since the epoch) to be looked up in the upstreams: some may have been lost. */
export type RequestReconcile = (since: number, cause: "start" | "reconnect" | "gap" | "overflow") => void;

export interface ForwardDeps {
  readonly admitAll: AdmitAll;
  readonly deadLetters: Pick<HeldDeadLetters, "take">;
  readonly namesErased: NamesErased;
  readonly server: { readonly info?: { readonly max_payload: number } | undefined };
  readonly requestReconcile: RequestReconcile;
  readonly version: string;
  /** If false, events of a batch that bring no trace share one, whose ids appear only in log lines. */
  readonly exportsTraces: boolean;
  readonly log: Logger;
  readonly observe: (all: readonly Forwarded[]) => void;
}

const DEFAULT_MAX_MESSAGE_BYTES = 1024 * 1024;

/**
 * Stores the payloads of a batch in the log, in their order, or in the DLQ if they cannot be understood. Those that
 * neither has acknowledged are tried again, so that an outage of NATS loses nothing that has arrived here.
 */
export function createForward(deps: ForwardDeps): Forward {
  const gaps = new Gaps();
  let failing = false;
  return async (batch, settled) => {
    let waiting = batch;
    for (let attempt = 1; ; attempt++) {
      // The numbers of events that are tried again were noted before.
      const failures = await forwardOnce({ ...deps, gaps: attempt === 1 ? gaps : undefined }, waiting, settled);
      const [first] = failures;
      if (first === undefined) {
        failing = false;
        return;
      }
      const fields = { events: failures.length, channel: first.arrived.channel, error: oneLine(first.error) };
      // One line is enough for all batches that an outage holds up.
      if (!failing) deps.log.warn(fields, "events could not be admitted yet; they are kept and tried again");
      failing = true;
      await pause(backoff(attempt, SECOND / 10, 2 * SECOND));
      waiting = failures.map(({ arrived }) => arrived);
    }
  };
}

type WithGaps = ForwardDeps & { readonly gaps: Gaps | undefined };
type Failure = { readonly arrived: Arrived; readonly error: unknown };

async function forwardOnce(
  deps: WithGaps,
  batch: readonly Arrived[],
  settled: (handled: readonly Arrived[]) => void,
): Promise<Failure[]> {
  const failures: Failure[] = [];
  const storing: Promise<void>[] = [];
  await failpoint("bridge-received", ...batch.map(({ payload }) => payload));
  const refuse = (arrived: Arrived, error: unknown): void => {
    const stored = deadLetter(deps, arrived, error).then(
      () => settled([arrived]),
      (failed: unknown) => void failures.push({ arrived, error: failed }),
    );
    storing.push(stored);
  };
  settled(await admitted(deps, admit(deps, batch, refuse), failures));
  await Promise.all(storing);
  return failures;
}

function parsePayload(deps: WithGaps, { channel, payload, arrival, publishedAfter }: Arrived): PublishedEvent {
  const most = (deps.server.info?.max_payload ?? DEFAULT_MAX_MESSAGE_BYTES) - HEADER_ROOM;
  if (payload.byteLength > most) throw new TooLarge(payload.byteLength);
  const event = parsePublished(channel, payload, arrival);
  const { producer, seq } = event.payload;
  if (deps.gaps && producer !== undefined && seq !== undefined) {
    const since = deps.gaps.note(producer, seq, publishedAfter);
    if (since !== undefined) deps.requestReconcile(since, "gap");
  }
  return event;
}

class TooLarge extends AppError {
  constructor(bytes: number) {
    super("invalid", `payload: has ${bytes} bytes, more than a message can carry`);
  }
}

/** Payloads that wait for their PubAcks, with their spans if these are exported. */
interface Pending {
  readonly all: readonly { arrived: Arrived; span: OpenSpan | undefined; publishedAt: number | undefined }[];
  readonly results: ReturnType<AdmitAll>;
}

/** Admits payloads that can be parsed, and refuses the others. Does not wait for PubAcks: only payloads are kept. */
function admit(deps: WithGaps, batch: readonly Arrived[], refuse: (arrived: Arrived, error: unknown) => void): Pending {
  const all: Pending["all"][number][] = [];
  const events: Admission[] = [];
  let shared: ReturnType<typeof traced> | undefined;
  for (const arrived of batch) {
    try {
      const event = parsePayload(deps, arrived);
      const isOwn = deps.exportsTraces || event.payload.traceparent !== undefined;
      const { headers, span } = (isOwn ? undefined : shared) ?? traced(event);
      if (!isOwn) shared = { headers, span };
      const body = JSON.stringify(event.payload);
      events.push({ subject: subjectOf(event.name), id: publishedId(event), body, headers });
      // A remote drop's creation is another server's, and an edge tells none.
      const publishedAt = event.name === "drop_created" ? event.payload.created_at : undefined;
      all.push({ arrived, span, publishedAt });
    } catch (error) {
      refuse(arrived, error);
    }
  }
  return { all, results: events.length === 0 ? Promise.resolve([]) : deps.admitAll(events) };
}

async function admitted(deps: ForwardDeps, { all, results }: Pending, failures: Failure[]): Promise<Arrived[]> {
  const answers = await results;
  await failpoint("bridge-admitted", ...all.map(({ arrived }) => arrived.payload));
  const stored: Arrived[] = [];
  const forwarded: Forwarded[] = [];
  for (const [index, { arrived, span, publishedAt }] of all.entries()) {
    const result = answers[index] as (typeof answers)[number];
    const failed = result instanceof AppError ? result : undefined;
    span?.end(failed);
    if (result instanceof AppError) failures.push({ arrived, error: result });
    else {
      const outcome = result.duplicate ? "duplicate" : "admitted";
      forwarded.push({ outcome, channel: arrived.channel, publishedAt });
      stored.push(arrived);
    }
  }
  deps.observe(forwarded);
  return stored;
}

/** The span is kept if it is exported. */
function traced(event: PublishedEvent) {
  const span = spanOf(event);
  return { headers: span.headers, span: span.isSampled ? span : undefined };
}

function spanOf({ name, payload: { traceparent } }: PublishedEvent): OpenSpan {
  const options = { kind: SpanKind.CONSUMER };
  if (traceparent === undefined) return openSpan(`receive ${name}`, options);
  const get = (field: string): string | undefined => (field === "traceparent" ? traceparent : undefined);
  const parent = contextOf({ get, entries: () => [["traceparent", traceparent]] });
  return openSpan(`receive ${name}`, { ...options, parent });
}

/** @throws the error itself if it is not about the payload */
async function deadLetter(deps: ForwardDeps, { channel, payload, arrival }: Arrived, error: unknown): Promise<void> {
  if (codeOf(error) !== "invalid") throw error;
  const reason = error instanceof TooLarge ? "toolarge" : "invalid";
  // Several bridges receive the same bytes and write one dead letter.
  const id = `dlq:${channel}:${fingerprint(payload)}`;
  const unstored = deadLetterOfUnstored(
    { id, origin: channel, body: payload, deliveries: 1, firstSeen: arrival },
    { reason, error, event: channel, version: deps.version, now: arrival },
  );
  if (await deps.namesErased(unstored)) return deps.observe([{ outcome: "erased", channel }]);
  const outcome = await deps.deadLetters.take(unstored);
  deps.observe([{ outcome: outcome === "refused" ? "refused" : reason, channel }]);
  if (outcome === "stored") deps.log.warn({ channel, reason, error: oneLine(error) }, "a payload was dead-lettered");
}

interface Numbered {
  readonly seq: number;
  readonly publishedAfter: ClockReading;
  /** The last number that came and was lower than `seq`. */
  readonly lower?: number;
}

/** Memory of the object and its clock reading. */
const NUMBERED_BYTES = 200;

export class Gaps {
  readonly #latest = createCache<Numbered>("producers", { sizeOf: () => NUMBERED_BYTES });

  /** @returns a time before a gap, ms since the epoch; undefined if nothing is missing */
  note(producer: string, seq: number, publishedAfter: ClockReading): number | undefined {
    const last = this.#latest.get(producer);
    const isNext = !last || seq > last.seq;
    // A producer that starts anew counts from the beginning. Any other lower number came late or twice, unless another
    // that is higher follows it: then the first ones were lost.
    const isAnew = last?.lower !== undefined && seq > last.lower && seq < last.seq;
    if (isNext || isAnew || seq <= 1) this.#latest.set(producer, { seq, publishedAfter });
    else if (seq < last.seq) this.#latest.set(producer, { ...last, lower: seq });
    return last && (isAnew || seq > last.seq + 1) ? wallTimeOf(last.publishedAfter) : undefined;
  }
}
