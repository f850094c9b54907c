import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import { Held } from "./held.js";
import { type Reading, readHistory } from "./history.js";
import type { Listener } from "./hub.js";
import { blockOf, positionBlock, resetBlock } from "./note.js";
import { observeGateway } from "./observe.js";
import type { Feed, Note } from "./ports.js";
import type { Position } from "./position.js";
import { type ResetReason, readLastEventId, type Wanted } from "./resume.js";
import { Seen } from "./seen.js";

/** Where a stream's blocks go. */
export interface Outlet {
  write(block: string): void;
  drained(): Promise<void>;
}

/** What a session works with. */
export interface SessionDeps {
  readonly user: string;
  readonly feed: Feed;
  readonly log: Logger;
}

/** How a stream begins. */
interface Start {
  readonly seq: number;
  readonly reset?: ResetReason | undefined;
  readonly replay: readonly Note[];
}

/** As many as two full replays: what was sent before a cut and after it. */
const SEEN_KEYS = 512;
/** A heartbeat does not wait longer than this for NATS. */
const CHECK_MS = SECOND;

/**
 * One stream of one user, from its position on.
 *
 * The position is the sequence up to which everything of the user was sent, in the
 * incarnation of the stream it is of. It only moves when that is so, and it is what the
 * client gets as `id:`. Live messages do not say which incarnation they are of: while the
 * feed does not know that it is this one, they are held.
 *
 * A session is either *live* or *catching up*; it begins catching up. Live, a message
 * whose predecessor is not beyond the position is sent as it comes. Any other shows a gap,
 * and the session catches up: it reads what the stream holds after the position, up to the
 * leader's last or to where the live messages that came meanwhile take over. Of those the
 * first ones are held; what finds no room is read from the stream in another round. So a
 * cutover is bounded, and neither loses nor repeats anything. Nobody needs to tell why live
 * messages were missed; heartbeats and reconnects look for it by the leader's last sequence.
 *
 * Where the stream lacks something after the position, or was replaced, the client gets a `reset`, and goes on at its end.
 */
export class Session implements Listener {
  sent = 0;
  readonly #seen = new Seen(SEEN_KEYS);
  #outlet: Outlet | undefined;
  #position = 0;
  #incarnation = "";
  readonly #held = new Held();
  #catchingUp = true;
  #ended = false;

  constructor(private readonly deps: SessionDeps) {}

  /** Finds out where to begin; live messages must reach {@link take} already. Nothing is sent yet. */
  async prepare(lastEventId: string | undefined, goodFrom: Position | undefined): Promise<Start> {
    const { lastSeq, incarnation } = await this.deps.feed.state();
    this.#incarnation = incarnation;
    const start = await this.#startOf(readLastEventId(lastEventId), goodFrom);
    const anew = start === undefined || start.reset !== undefined;
    this.#position = anew ? lastSeq : start.seq;
    return anew ? { seq: lastSeq, reset: start?.reset, replay: [] } : start;
  }

  /** The first block, with how soon to come again after a cut. */
  greeting(retryMs: number): string {
    return positionBlock(this.#place, "connected", retryMs);
  }

  /** Sends what the start says, and then goes live. */
  async start(outlet: Outlet, { reset, replay }: Start): Promise<void> {
    this.#outlet = outlet;
    if (reset) this.#sendReset(reset);
    await this.#sendAll(replay, true);
    await this.#goLive(false);
  }

  take(note: Note): void {
    const known = this.deps.feed.current() === this.#incarnation;
    if (this.#ended || (known && note.seq <= this.#position)) return;
    if (this.#catchingUp || !known) return this.#held.add(note);
    if (this.#follows(note)) return this.#send(note);
    this.#held.add(note);
    void this.#catchUp();
  }

  /** Tells the client to read everything anew; the stream goes on. */
  reset(reason: ResetReason): void {
    if (!this.#ended) this.#sendReset(reason);
  }

  /** Looks whether anything was missed, and moves the position to the stream's end where not. */
  async recheck(): Promise<void> {
    if (this.#ended || this.#catchingUp) return;
    const { feed, user, log } = this.deps;
    const before = this.#position;
    try {
      const { lastSeq, incarnation } = await feed.state();
      if (this.#catchingUp || this.#ended) return;
      if (incarnation !== this.#incarnation || lastSeq < before) {
        this.#startOver("stream_replaced", { seq: lastSeq, incarnation });
        return await this.#catchUp();
      }
      if (lastSeq <= this.#position) return;
      // Whatever of the user is stored up to `lastSeq` the leader shows now.
      const last = await feed.lastOf(user);
      if (last > this.#position) await this.#catchUp();
      else if (!this.#catchingUp) this.#position = Math.max(this.#position, lastSeq);
    } catch (error) {
      log.debug({ error: oneLine(error) }, "a stream was not checked; the next heartbeat does it");
    }
  }

  /** Checks, and tells the client where it stands. */
  async heartbeat(): Promise<void> {
    const late = new AbortController();
    await Promise.race([this.recheck(), pause(CHECK_MS, late.signal)]);
    late.abort();
    if (!this.#ended) this.#outlet?.write(positionBlock(this.#place, "heartbeat"));
  }

  /** Sends nothing more. */
  end(): void {
    this.#ended = true;
  }

  get #place(): Position {
    return { seq: this.#position, incarnation: this.#incarnation };
  }

  async #startOf(wanted: Wanted, goodFrom: Position | undefined): Promise<Start | undefined> {
    if (wanted.kind === "new") return undefined;
    const start =
      wanted.kind === "after" ? await this.#replayFrom(wanted.position, goodFrom) : anew("unknown_position");
    observeGateway.resumed(start.reset ? "reset" : "replayed");
    return start;
  }

  async #replayFrom({ seq, incarnation }: Position, goodFrom: Position | undefined): Promise<Start> {
    if (incarnation !== this.#incarnation) return anew("stream_replaced");
    const { lastSeq } = await this.deps.feed.state();
    if (seq > lastSeq) return anew("unknown_position");
    if (goodFrom?.incarnation === incarnation && seq < goodFrom.seq) return anew("registration_lost");
    this.#position = seq;
    // From the beginning: what was sent before the cut is not sent again when it was stored twice.
    const { notes, fault } = await this.#readOn(0);
    return { seq, reset: fault, replay: notes };
  }

  #readOn(from: number): Promise<Reading> {
    const stopped = (): boolean => this.#ended;
    return readHistory({ ...this.deps, position: this.#place, from, held: this.#held, seen: this.#seen, stopped });
  }

  async #catchUp(): Promise<void> {
    if (this.#catchingUp) return;
    this.#catchingUp = true;
    await this.#goLive(true);
  }

  /** Reads and sends what the stream holds after the position. */
  async #readRound(): Promise<void> {
    const aim = Math.max(this.#position, this.#held.highest);
    const { lastSeq, incarnation } = await this.deps.feed.state();
    const replaced = incarnation !== this.#incarnation || lastSeq < aim;
    if (replaced) return this.#startOver("stream_replaced", { seq: lastSeq, incarnation });
    const { notes, whole, fault } = await this.#readOn(this.#position);
    // Replaced meanwhile: the next round asks where the new one ends.
    if (fault === "stream_replaced") return;
    if (fault) return this.#startOver(fault, { seq: Math.max(lastSeq, this.#position), incarnation });
    await this.#sendAll(notes);
    // Everything of the user up to there is sent, or gone from the stream.
    if (whole) this.#position = Math.max(this.#position, lastSeq);
  }

  /** Sends what is held as far as it follows; what does not is read in rounds, and first where something is missing. */
  async #goLive(missing: boolean): Promise<void> {
    try {
      for (let read = missing; !this.#ended; read = true) {
        if (read) await this.#readRound();
        await this.#sendHeld();
        if (this.#held.highest <= this.#position && this.deps.feed.current() === this.#incarnation) break;
      }
    } catch (error) {
      this.deps.log.debug({ error: oneLine(error) }, "a stream did not catch up; the next heartbeat tries again");
    }
    this.#held.clear();
    this.#catchingUp = false;
  }

  async #sendHeld(): Promise<void> {
    for (let note = this.#held.first; note && this.#follows(note); note = this.#held.first) {
      await this.#outlet?.drained();
      if (this.deps.feed.current() !== this.#incarnation) return;
      this.#held.shift();
      if (note.seq > this.#position) this.#send(note);
    }
  }

  #follows({ seq, previous }: Note): boolean {
    return seq <= this.#position || (previous !== undefined && previous <= this.#position);
  }

  async #sendAll(notes: readonly Note[], replayed = false): Promise<void> {
    for (const note of notes) {
      await this.#outlet?.drained();
      if (this.#ended) return;
      this.#send(note, replayed);
    }
  }

  #send(note: Note, replayed = false): void {
    this.#position = note.seq;
    const { content } = note;
    if (!content) return;
    if (content.key !== undefined && this.#seen.repeats(content.key)) return observeGateway.duplicate();
    observeGateway.writing(note, () => this.#outlet?.write(blockOf(this.#place, content)));
    this.sent++;
    observeGateway.sent(note, replayed);
  }

  #startOver(reason: ResetReason, { seq, incarnation }: Position): void {
    this.#position = seq;
    this.#incarnation = incarnation;
    // The old stream's sequences mean nothing in a new one.
    if (reason === "stream_replaced") this.#held.clear();
    this.#sendReset(reason);
  }

  #sendReset(reason: ResetReason): void {
    observeGateway.reset(reason);
    this.#outlet?.write(resetBlock(this.#place, reason));
  }
}

const anew = (reset: ResetReason): Start => ({ seq: 0, reset, replay: [] });
