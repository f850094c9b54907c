import { PAGED_TIMELINES, type PagedTimeline } from "../contracts/timeline-pages.js";
import { SECOND, sharedNow } from "../kernel/time.js";
import { counter, gauge, histogram, observedGauge, upDownCounter } from "../telemetry/meters.js";
import type { Headers } from "../telemetry/spans.js";
import { contextOf, type OpenSpan, openSpan, SpanKind } from "../telemetry/spans.js";
import type { Notification } from "./notification.js";
import { RESET_REASONS, type ResetReason } from "./resume.js";

const CLOSE_REASONS = [
  ...["client", "slow", "expired", "lifetime", "drain"],
  ...["erased", "logged_out", "suspended", "list_deleted"],
] as const;
export type CloseReason = (typeof CLOSE_REASONS)[number];

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300];

const open = upDownCounter("timeline_sse_connections", "Open event streams");
const limit = gauge("timeline_sse_max_connections", "Event streams a process opens at most");
const opened = counter("timeline_sse_opened", "Event streams opened");
const closed = counter(
  "timeline_sse_closed",
  "Event streams closed; `erased`: their user was erased; `logged_out`: `streams end`; `suspended`: `standing set`; `list_deleted`: their list was deleted",
);
const refused = counter(
  "timeline_sse_refused",
  "Event streams refused, by HTTP status; also where the client got a stream that ends at once",
);
const sent = counter("timeline_sse_events", "Events sent");
const sinceCreated = histogram(
  "timeline_sse_created_to_written_seconds",
  "From the creation of a drop or a notification until its event is sent; of those sent together, the oldest",
  SECONDS,
);
const sinceStored = histogram(
  "timeline_sse_stored_to_written_seconds",
  "From storing a notification until it is sent; of those sent together, the oldest; unknown to nats-server before 2.10",
  SECONDS,
);
const resumes = counter("timeline_sse_resumes", "Resumed streams");
const resets = counter("timeline_sse_resets", "Resets sent");
const duplicates = counter("timeline_sse_duplicates", "Repeated notifications not sent again");
const pages = counter("timeline_http_pages", "Pages of timelines served over HTTP, by timeline");
const pagesRefused = counter("timeline_http_pages_refused", "Requests for such pages refused, by HTTP status");
const pagesWithoutDrops = counter(
  "timeline_http_pages_without_drops",
  "Pages served without the drops that were asked for (`expand=drops`), because these could not be read",
);
const notificationsRefused = counter(
  "timeline_http_notifications_refused",
  "Requests about notifications refused, by HTTP status",
);
const renewed = counter("timeline_sse_registrations", "Registrations of listeners");

const KNOWN_EVENTS = new Set([
  "new_drop",
  "drop_deleted",
  "drop_edited",
  "analysis_completed",
  "analysis_failed",
  "xp_earned",
  "new_position",
  "notification",
  "notifications_read",
]);
const REFUSALS = [401, 403, 410, 429, 500, 503];

interface Tally {
  count: number;
  createdAt: number;
  storedAt: string | undefined;
}

/**
 * Counts the events that a gateway sends in one turn of the event loop, by type, with the times of the oldest; of live
 * events that is the first.
 */
export class SentEvents {
  readonly #tallies = new Map<string, Tally>();

  /** Replayed events count without times: their delay is the absence of the client. */
  add({ content, storedAt }: Notification, replayed: boolean): void {
    const tally = this.#tallyOf(content?.event ?? "");
    tally.count++;
    if (replayed) return;
    tally.createdAt = Math.min(tally.createdAt, content?.createdAt ?? Number.POSITIVE_INFINITY);
    tally.storedAt ??= storedAt;
  }

  /** Adds changes of local or global. What the gateway has had for longer is replayed, or waited for its client. */
  addShared(
    changes: readonly { readonly event: string; readonly createdAt?: number | undefined; readonly takenAt: number }[],
  ): void {
    const since = sharedNow() - SECOND;
    for (const { event, createdAt, takenAt } of changes) {
      const tally = this.#tallyOf(event);
      tally.count++;
      if (createdAt !== undefined && takenAt > since) tally.createdAt = Math.min(tally.createdAt, createdAt);
    }
  }

  #tallyOf(event: string): Tally {
    const type = KNOWN_EVENTS.has(event) ? event : "other";
    if (this.#tallies.size === 0) setImmediate(() => this.#record());
    let tally = this.#tallies.get(type);
    if (!tally) {
      tally = { count: 0, createdAt: Number.POSITIVE_INFINITY, storedAt: undefined };
      this.#tallies.set(type, tally);
    }
    return tally;
  }

  #record(): void {
    const now = sharedNow();
    for (const [type, { count, createdAt, storedAt }] of this.#tallies) {
      sent.add(count, { type });
      if (Number.isFinite(createdAt)) sinceCreated.record(Math.max(0, now - createdAt) / 1_000, { type });
      if (storedAt) sinceStored.record(Math.max(0, now - Date.parse(storedAt)) / 1_000, { type });
    }
    this.#tallies.clear();
  }
}

export const observeGateway = {
  /** Counters start at 0, so that the first failure shows as an increase. */
  started(maxConnections: number): void {
    limit.record(maxConnections);
    open.add(0);
    opened.add(0);
    for (const reason of CLOSE_REASONS) closed.add(0, { reason });
    for (const status of REFUSALS) refused.add(0, { status });
    for (const reason of RESET_REASONS) resets.add(0, { reason });
    for (const outcome of ["replayed", "reset"]) resumes.add(0, { outcome });
    duplicates.add(0);
  },
  /** Continues the client's trace. The span is never active: that would cost every promise of the process a hook. */
  opening: (headers: Headers | undefined): OpenSpan =>
    openSpan("sse open", { kind: SpanKind.SERVER, ...(headers && { parent: contextOf(headers) }) }),
  opened(): void {
    open.add(1);
    opened.add(1);
  },
  closed(reason: CloseReason): void {
    open.add(-1);
    closed.add(1, { reason });
  },
  pagesServed(): void {
    for (const timeline of PAGED_TIMELINES) pages.add(0, { timeline });
    pagesWithoutDrops.add(0);
    for (const status of [500, 503]) pagesRefused.add(0, { status });
  },
  pageServed: (timeline: PagedTimeline): void => pages.add(1, { timeline }),
  pageWithoutDrops: (): void => pagesWithoutDrops.add(1),
  notificationsServed(): void {
    for (const status of [500, 503]) notificationsRefused.add(0, { status });
  },
  notificationsRefused: (status: number): void => notificationsRefused.add(1, { status }),
  pageRefused: (status: number): void => pagesRefused.add(1, { status }),
  keys: (age: () => number): void =>
    observedGauge("timeline_jwks_age_seconds", "Time since the server of the key set last answered", age),
  refused: (status: number): void => refused.add(1, { status }),
  writing: ({ traced }: Notification): OpenSpan | undefined =>
    traced && openSpan("sse write", { kind: SpanKind.PRODUCER, parent: contextOf(traced) }),
  resumed: (outcome: "replayed" | "reset"): void => resumes.add(1, { outcome }),
  reset: (reason: ResetReason): void => resets.add(1, { reason }),
  duplicate: (): void => duplicates.add(1),
  registrations(outcome: "renewed" | "lost" | "swept", count: number): void {
    if (count > 0) renewed.add(count, { outcome });
  },
};
