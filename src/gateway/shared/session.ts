import { randomUUID } from "node:crypto";
import type { SharedTimeline } from "../../contracts/stream-events.js";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { pause, SECOND, sharedNow } from "../../kernel/time.js";
import { connectionId, type HiddenUsers, isUnlisted, NOBODY, type Standings } from "../../state/index.js";
import type { Principal } from "../auth.js";
import { greetingBlock, parsePosition, positionBlock, resetBlock } from "../notification.js";
import { observeGateway, type SentEvents } from "../observe.js";
import type { ResetReason } from "../resume.js";
import type { Start } from "../session/catch-up.js";
import type { StreamSession, StreamSink } from "../session/stream-session.js";
import type { SharedEntry, SharedLog } from "./log.js";
import type { SharedSource } from "./source.nats.js";

/** Maximum number of entries that a stream sends in one turn; then the other streams have theirs. */
const ENTRIES_A_TURN = 64;
/** Minimum time between two reads of the users whom a viewer hides: a block hides within 2 s. */
const READ_MS = SECOND / 5;

export interface SharedSessionDeps {
  readonly shared: SharedLog;
  readonly source: Pick<SharedSource, "lastSeq" | "filled">;
  /** @throws AppError `unavailable` while neither Redis nor the users service answers */
  readonly readHidden: (user: string) => Promise<HiddenUsers>;
  readonly standings: Pick<Standings, "of" | "size" | "changes">;
  readonly texts: SharedTexts;
  readonly sentEvents: SentEvents;
  /** Callback: called once, at the end of the session. */
  readonly ended: (session: SharedSession) => void;
  readonly log: Logger;
}

/** The entries that a stream sends in one turn. */
interface Batch {
  readonly text: string;
  readonly sent: readonly SharedEntry[];
  /** Sequence up to which the stream has everything then. */
  readonly seq: number;
  readonly isEnd: boolean;
}

/** Makes the batches of viewers who hide nobody, each once for all streams that have reached the same position. */
export class SharedTexts {
  #last = "";
  readonly #batches = new Map<string, Batch>();

  constructor(private readonly deps: Pick<SharedSessionDeps, "shared" | "standings">) {}

  batch(seq: number, timeline: SharedTimeline): Batch {
    const { shared, standings } = this.deps;
    const state = `${shared.incarnation} ${shared.last} ${standings.changes}`;
    if (state !== this.#last) this.#batches.clear();
    this.#last = state;
    const name = `${timeline} ${seq}`;
    const known = this.#batches.get(name);
    if (known) return known;
    const { entries, ...reached } = shared.after(seq, timeline, ENTRIES_A_TURN);
    const sent = entries.filter((entry) => isListed(standings, entry, NOBODY));
    const batch = { ...reached, sent, text: textOf(sent) };
    if (this.#batches.size < MOST_BATCHES) this.#batches.set(name, batch);
    return batch;
  }
}

/** Streams that lag stand at many positions. */
const MOST_BATCHES = 64;

const textOf = (entries: readonly SharedEntry[]): string => entries.map(({ block }) => block).join("");

/** A deletion tells nothing of a suspended or limited author, and a client may show the drop. */
const isListed = (standings: SharedSessionDeps["standings"], { event, by }: SharedEntry, viewer: string): boolean =>
  event === "drop_deleted" || by === undefined || standings.size === 0 || !isUnlisted(standings, by, viewer);

/**
 * A stream of local or global: a position in the log of the gateway. It stands still while its client does not read, and
 * while it is not known whom its user hides.
 */
export class SharedSession implements StreamSession {
  readonly id: string;
  readonly user: string;
  readonly reader: string;
  readonly issuedAt: number;
  readonly createdAt = sharedNow();
  /** Fan-out stores nothing for this stream: its user does not listen. */
  readonly isListener = false;
  /** The log looks for missed messages, so that no heartbeat has to. */
  readonly heardAt = Number.NEGATIVE_INFINITY;
  listing = "";
  sent = 0;
  #sink: StreamSink | undefined;
  #seq = 0;
  #incarnation = "";
  #hidden: HiddenUsers | undefined;
  /** Number of changes of the viewer's relations. */
  #changes = 0;
  #isReading = false;
  #isBusy = false;
  #isOver = false;

  constructor(
    { user, issuedAt }: Pick<Principal, "user" | "issuedAt">,
    private readonly timeline: SharedTimeline,
    private readonly deps: SharedSessionDeps,
  ) {
    this.user = this.reader = user;
    this.issuedAt = issuedAt;
    this.id = connectionId(randomUUID(), user);
  }

  /** Finds the start. @throws AppError `unavailable` if the viewer's drops cannot be judged */
  async prepare(lastEventId: string | undefined): Promise<Start> {
    const { shared, source, readHidden } = this.deps;
    await source.filled();
    const before = this.#changes;
    const hidden = await readHidden(this.user);
    if (before === this.#changes) this.#hidden = hidden;
    const reset = lastEventId === undefined ? undefined : await this.#resume(lastEventId);
    if (lastEventId !== undefined) observeGateway.resumed(reset ? "reset" : "replayed");
    this.#incarnation = shared.incarnation;
    if (lastEventId === undefined || reset) this.#seq = shared.last;
    return { seq: this.#seq, reset, replay: [] };
  }

  async #resume(lastEventId: string): Promise<ResetReason | undefined> {
    const { shared, source } = this.deps;
    const position = parsePosition(lastEventId);
    if (!position || !shared.isPosition(position)) return "unknown_position";
    if (position.incarnation !== shared.incarnation) return "stream_replaced";
    if (position.seq < shared.floor) return "too_old";
    // Another gateway may be ahead of this one.
    if (position.seq > shared.last && position.seq > (await source.lastSeq())) return "unknown_position";
    this.#seq = position.seq;
    return undefined;
  }

  greeting(retryMs: number, { reset }: Start): string {
    if (reset) observeGateway.reset(reset);
    return greetingBlock(this.#position(), retryMs, reset);
  }

  async start(sink: StreamSink): Promise<void> {
    this.#sink = sink;
    this.pump();
  }

  /** Called when other users are hidden from the viewer than before: nothing more is sent until they are known. */
  relationsChanged(): void {
    this.#changes++;
    this.#hidden = undefined;
  }

  /** Sends what the log has after the position, a part of it in each turn. */
  pump(): void {
    const sink = this.#sink;
    if (this.#isOver || this.#isBusy || !sink) return;
    const { shared } = this.deps;
    if (shared.incarnation !== this.#incarnation) return this.#startOver("stream_replaced");
    if (this.#seq < shared.floor) return this.#startOver("too_old");
    if (this.#seq >= shared.last) return;
    if (sink.isBlocked) return void this.#whileBusy(sink.drained());
    const { standings, texts } = this.deps;
    const hidden = this.#known();
    if (!hidden) return void this.#read();
    if (hidden.size === 0 && (standings.size === 0 || standings.of(this.user) !== "limited"))
      return this.#send(texts.batch(this.#seq, this.timeline));
    void this.#whileBusy(this.#judge(hidden));
  }

  heartbeat(): void {
    if (!this.#isOver) this.#sink?.write(positionBlock(this.#position(), "heartbeat"));
  }

  /** The log itself looks for missed messages. */
  async recheck(): Promise<void> {
    this.pump();
  }

  async registeredAgain(): Promise<boolean> {
    return true;
  }

  end(): void {
    if (!this.#isOver) this.deps.ended(this);
    this.#isOver = true;
  }

  #position() {
    return this.deps.shared.positionAt(this.#seq);
  }

  #known(): HiddenUsers | undefined {
    const { until = Number.POSITIVE_INFINITY } = this.#hidden ?? {};
    return until > sharedNow() ? this.#hidden : undefined;
  }

  async #judge(hidden: HiddenUsers): Promise<void> {
    const { shared, standings } = this.deps;
    const { entries, ...reached } = shared.after(this.#seq, this.timeline, ENTRIES_A_TURN);
    const asked = await hidden.among(entries.flatMap(({ by }) => by ?? []));
    // Meanwhile a block may have come, or the log may have begun anew.
    if (hidden !== this.#hidden || this.#isOver) return;
    const sent = entries.filter(
      (entry) => !(entry.by && asked.hides(entry.by)) && isListed(standings, entry, this.user),
    );
    if (shared.incarnation === this.#incarnation) this.#send({ ...reached, sent, text: textOf(sent) });
  }

  #send({ text, sent, seq, isEnd }: Batch): void {
    this.#seq = seq;
    if (sent.length > 0) {
      this.#sink?.write(text);
      this.sent += sent.length;
      this.deps.sentEvents.addShared(sent);
    }
    if (!isEnd) setImmediate(() => this.pump());
  }

  #startOver(reason: ResetReason): void {
    const { shared } = this.deps;
    this.#seq = shared.last;
    this.#incarnation = shared.incarnation;
    observeGateway.reset(reason);
    this.#sink?.write(resetBlock(this.#position(), reason));
  }

  /** Nothing else is sent before the work ends. */
  async #whileBusy(work: Promise<void>): Promise<void> {
    this.#isBusy = true;
    try {
      await work;
    } catch (error) {
      this.#hidden = undefined;
      this.#unread(error);
    } finally {
      this.#isBusy = false;
    }
    this.pump();
  }

  /** Reads whom the user hides, now and then until it is known. */
  async #read(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    const before = this.#changes;
    const over = pause(READ_MS);
    const hidden = await this.deps.readHidden(this.user).catch((error: unknown) => this.#unread(error));
    if (before === this.#changes) this.#hidden = hidden;
    this.pump();
    await over;
    this.#isReading = false;
    this.pump();
  }

  #unread(error: unknown): undefined {
    this.deps.log.debug({ error: oneLine(error) }, "the users whom a viewer hides could not be read; the stream waits");
  }
}
