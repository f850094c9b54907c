import { bylineOf } from "../../contracts/timelines.js";
import { sharedNow } from "../../kernel/time.js";
import { Hidden, isOfSuspended, type Standings } from "../../state/index.js";
import {
  type Content,
  frameOf,
  type HidingChange,
  type Notification,
  positionBlock,
  resetBlock,
} from "../notification.js";
import { observeGateway, type SentEvents } from "../observe.js";
import { RecentKeys, type ResetReason } from "../resume.js";
import type { StreamRequest } from "../routes.http.js";
import type { Position } from "./position.js";

export type EventSink = Pick<ReturnType<StreamRequest["open"]>, "write" | "drained">;

const MAX_SENT_KEYS = 512;
/** Maximum number of remembered changes. NOTIFY keeps as many messages of a user, so a resume repeats none from before. */
const MAX_HIDINGS = 128;

interface ClientDeps {
  readonly sentEvents: SentEvents;
  readonly standings: Pick<Standings, "of" | "size">;
  /** Resolves to false for what the user does not see. Default: fan-out has judged what the stream gets. */
  readonly judge?: ((notification: Notification) => Promise<boolean>) | undefined;
}

/** The client of one stream: what it has got, and what its user hides from it. It gets nothing before it is connected. */
export class StreamClient {
  sent = 0;
  /** Another part has stored a notification of the user, and the client has got no reset since. */
  lacksElsewhere = false;
  #sink: EventSink | undefined;
  /** Created when it is needed, as is the map: most streams are quiet. */
  #sentKeys: RecentKeys | undefined;
  /**
   * Recent changes of relations. Fan-out applies them to later notifications. Only those that it may have sent at the same
   * time, and those that a resume repeats, are checked here.
   */
  #hidings: Map<string, HidingChange> | undefined;

  constructor(
    /** The user, or the reader of a list, as NOTIFY names them. */
    readonly reader: string,
    readonly position: Position,
    private readonly deps: ClientDeps,
  ) {}

  /** True: notifications are sent one after the other, each after {@link ready}. */
  get isJudged(): boolean {
    return this.deps.judge !== undefined;
  }

  /** Resolves once the client can take a notification, to false if it is not to be sent. */
  async ready(notification: Notification): Promise<boolean> {
    await this.drained();
    return this.isShown(notification);
  }

  /** Resolves to false if the notification is not to be sent. */
  async isShown(notification: Notification): Promise<boolean> {
    return (await this.deps.judge?.(notification)) ?? true;
  }

  /** Keeps the key of what an earlier stream has sent. */
  noteSent({ content }: Notification): void {
    if (content?.key) this.sentKeys.isRepeated(content.key);
  }

  connect(sink: EventSink): void {
    this.#sink = sink;
  }

  get sentKeys(): RecentKeys {
    this.#sentKeys ??= new RecentKeys(MAX_SENT_KEYS);
    return this.#sentKeys;
  }

  hasGot(key: string): boolean {
    return this.#sentKeys?.has(key) ?? false;
  }

  /** Later events are checked against the change of which the notification tells. */
  noteHiding({ hiding: change }: Notification): void {
    if (!change) return;
    this.#hidings ??= new Map();
    // The map begins with the change that is the oldest.
    this.#hidings.delete(change.target);
    this.#hidings.set(change.target, change);
    for (const oldest of this.#hidings.keys()) {
      if (this.#hidings.size <= MAX_HIDINGS) break;
      this.#hidings.delete(oldest);
    }
  }

  async drained(): Promise<void> {
    await this.#sink?.drained();
  }

  /** Moves the position, and sends an event that the user may see and the client has not got. */
  send(notification: Notification, replayed: boolean, isShown = true): void {
    const { content } = notification;
    this.position.moveTo(notification);
    this.noteHiding(notification);
    if (!content || !isShown || this.#hides(content)) return;
    if (content.key !== undefined && this.sentKeys.isRepeated(content.key)) return observeGateway.duplicate();
    if (content.endedBy !== undefined && this.hasGot(content.endedBy)) return;
    const span = observeGateway.writing(notification);
    this.#sink?.write(frameOf(notification, this.position));
    span?.end();
    this.sent++;
    this.deps.sentEvents.add(notification, replayed);
  }

  heartbeat(): void {
    this.#sink?.write(positionBlock(this.position, "heartbeat"));
  }

  reset(reason: ResetReason): void {
    observeGateway.reset(reason);
    this.#sink?.write(resetBlock(this.position, reason));
  }

  /** Goes on at `seq`, and forgets changes: some may have been missed. Fan-out has applied them to what comes then. */
  startOver(reason: ResetReason, seq: number, createdAt: number): void {
    this.position.settle(seq);
    this.position.countIn(createdAt);
    this.lacksElsewhere = false;
    this.#hidings = undefined;
    this.reset(reason);
  }

  #hides({ event, by }: Content): boolean {
    // A client may show the deleted drop of somebody who was suspended since.
    if (by === undefined || event === "drop_deleted") return false;
    if (isOfSuspended(this.deps.standings, bylineOf(by))) return true;
    if (this.#hidings === undefined) return false;
    const current = [...this.#hidings.values()].filter(({ until = Number.POSITIVE_INFINITY }) => until > sharedNow());
    const hidings = new Map(current.map(({ target, hiding }) => [target, hiding]));
    return new Hidden(this.reader, hidings).hides(bylineOf(by));
  }
}
