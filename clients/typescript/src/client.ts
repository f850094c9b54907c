import { type CallOptions, call } from "./calls.js";
import type { EventsOf, StreamName, TimelineName } from "./events.js";
import type {
  Accepted,
  Analyses,
  Analysis,
  ListQuery,
  Notifications,
  NotificationsQuery,
  Order,
  Positions,
  PositionToSet,
  Rewards,
  SetPosition,
  Timeline,
  TimelineQuery,
  Unread,
} from "./gen/schemas.js";
import { type ClientOptions, createSend, type Send } from "./send.js";
import { type StreamOptions, TimelineStream } from "./stream.js";

export interface AnalyzeOptions extends CallOptions {
  /** Calls with the same key and order, a day long, make one analysis. Default: a new key for each call. */
  readonly idempotencyKey?: string;
}

/** The stream of the home has notifications among its events. */
const NOTIFICATIONS: ReadonlySet<string> = new Set<EventsOf<"notifications">>([
  "notification",
  "notifications_read",
  "reset",
]);

const placeOf = (timeline: TimelineName): string =>
  timeline.startsWith("list:") ? `list/${encodeURIComponent(timeline.slice("list:".length))}` : timeline;

/** Talks to the gateway as one user. Calls reject with a TimelineError. */
export class TimelineClient {
  readonly #send: Send;

  constructor(options: ClientOptions = {}) {
    this.#send = createSend(options);
  }

  /** Reads a page. The three cursors of the query exclude each other. */
  page(timeline: TimelineName, query: TimelineQuery = {}, { signal }: CallOptions = {}): Promise<Timeline> {
    return call(this.#send, `/api/v1/timelines/${placeOf(timeline)}`, { query, signal });
  }

  /**
   * Opens the stream of a timeline. The stream of the home also tells of positions, notifications, analyses and rewards.
   * `notifications` opens a connection to the same stream, and passes on events of notifications only.
   */
  stream<Name extends StreamName>(name: Name, options: StreamOptions = {}): TimelineStream<EventsOf<Name>> {
    const [place, only] = name === "notifications" ? ["home", NOTIFICATIONS] : [placeOf(name), undefined];
    return new TimelineStream(this.#send, { path: `/events/timeline/${place}`, name, only }, options);
  }

  /** Reads the newest drop that the user has read in each timeline. */
  positions({ signal }: CallOptions = {}): Promise<Positions> {
    return call(this.#send, "/api/v1/positions", { signal });
  }

  /**
   * Stores the newest drop that the user has read in a timeline. The stream of the home sends `new_position` to all
   * devices. If another drop is stored with the same or a higher version, the call rejects with status 409, and the
   * message names it.
   */
  setPosition(position: PositionToSet, { signal }: CallOptions = {}): Promise<SetPosition> {
    return call(this.#send, "/api/v1/positions", { method: "POST", body: position, signal });
  }

  /** Lists what others did with the user and their drops, newest first. The stream sends `notification`. */
  notifications(query: NotificationsQuery = {}, { signal }: CallOptions = {}): Promise<Notifications> {
    return call(this.#send, "/api/v1/notifications", { query, signal });
  }

  /** Counts the unread notifications of the user, up to 100. */
  unread({ signal }: CallOptions = {}): Promise<Unread> {
    return call(this.#send, "/api/v1/notifications/unread", { signal });
  }

  /** Marks a notification and all older ones as read. The stream sends `notifications_read` to all tabs of the user. */
  async markRead(up_to_id: string, { signal }: CallOptions = {}): Promise<void> {
    await call(this.#send, "/api/v1/notifications/read", { method: "POST", body: { up_to_id }, signal });
  }

  /** Asks for an analysis. The stream sends `analysis_completed` or `analysis_failed`. */
  analyze(order: Order, { idempotencyKey = crypto.randomUUID(), signal }: AnalyzeOptions = {}): Promise<Accepted> {
    const headers = { "idempotency-key": idempotencyKey };
    return call(this.#send, "/api/v1/timeline/analyze", { method: "POST", body: order, headers, signal });
  }

  /** Reads the status and the results of an analysis of the user. */
  analysis(id: string, { signal }: CallOptions = {}): Promise<Analysis> {
    return call(this.#send, `/api/v1/timeline/analyses/${encodeURIComponent(id)}`, { signal });
  }

  /** Lists the analyses of the user, newest first. */
  analyses(query: ListQuery = {}, { signal }: CallOptions = {}): Promise<Analyses> {
    return call(this.#send, "/api/v1/timeline/analyses", { query, signal });
  }

  /** Lists the rewards of the user, newest first. */
  rewards(query: ListQuery = {}, { signal }: CallOptions = {}): Promise<Rewards> {
    return call(this.#send, "/api/v1/xp", { query, signal });
  }
}
