import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import { Held } from "./held.js";
import type { Listener } from "./hub.js";
import { blockOf, positionBlock, resetBlock } from "./note.js";
import { observeGateway } from "./observe.js";
import type { Content, Feed, Note } from "./ports.js";
import { incompleteness, MOST_REPLAYED, type ResetReason, readLastEventId, type Wanted } from "./resume.js";
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
  readonly position: number;
  readonly reset?: ResetReason | undefined;
  readonly replay: readonly Note[];
}

/** What was read after a position. */
interface Reading {
  readonly notes: Note[];
  /** Up to the leader's last, and not only up to where live ones take over. */
  readonly whole: boolean;
  readonly fault: ResetReason | undefined;
}

/** As many as two full replays: what was sent before a cut and after it. */
const SEEN_KEYS = 512;
/** A heartbeat does not wait longer than this for NATS. */
const CHECK_MS = SECOND;

/**
 * One stream of one user, from its position on.
 *
 * The position is the sequence up to which everything of the user was sent. It only moves
 * when that is so, and it is what the client gets as `id:`.
 *
 * A session is either *live* or *catching up*; it begins catching up. Live, a message
 * whose predecessor is not beyond the position is sent as it comes. Any other shows a gap,
 * and the session catches up: it reads what the stream holds after the position, up to the
 * leader's last or to where the live messages that came meanwhile take over. Of those the
 * first ones are held; what finds no room is read from the stream in another round. So a
 * cutover is bounded, and neither loses nor repeats anything. Nobody needs to tell why live
 * messages were missed; heartbeats and reconnects look for it by the leader's last sequence.
 *
 * Where the stream no longer holds everything after the position, the client gets a `reset`, and goes on at its end.
 */
export class Session implements Listener {
  sent = 0;
  readonly #seen = new Seen(SEEN_KEYS);
  #outlet: Outlet | undefined;
  #position = 0;
  readonly #held = new Held();
  #catchingUp = true;
  #ended = false;

  constructor(private readonly deps: SessionDeps) {}

  /** Finds out where to begin; live messages must reach {@link take} already. Nothing is sent yet. */
  async prepare(lastEventId: string | undefined, goodFrom: number): Promise<Start> {
    const { lastSeq } = await this.deps.feed.state();
    const start = await this.#startOf(readLastEventId(lastEventId), goodFrom);
    const anew = start === undefined || start.reset !== undefined;
    this.#position = anew ? lastSeq : start.position;
    return anew ? { position: lastSeq, reset: start?.reset, replay: [] } : start;
  }

  /** The first block, with how soon to come again after a cut. */
  greeting(retryMs: number): string {
    return positionBlock(this.#position, "connected", retryMs);
  }

  /** Sends what the start says, and then goes live. */
  async start(outlet: Outlet, { reset, replay }: Start): Promise<void> {
    this.#outlet = outlet;
    if (reset) this.#sendReset(reset);
    await this.#sendAll(replay, true);
    await this.#goLive(false);
  }

  take(note: Note): void {
    if (this.#ended || note.seq <= this.#position) return;
    if (this.#catchingUp) return this.#held.add(note);
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
      const { lastSeq } = await feed.state();
      if (this.#catchingUp || this.#ended) return;
      if (lastSeq < before) return this.#startOver("stream_replaced", lastSeq);
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
    if (!this.#ended) this.#outlet?.write(positionBlock(this.#position, "heartbeat"));
  }

  /** Sends nothing more. */
  end(): void {
    this.#ended = true;
  }

  async #startOf(wanted: Wanted, goodFrom: number): Promise<Start | undefined> {
    if (wanted.kind === "new") return undefined;
    const start = wanted.kind === "after" ? await this.#replayFrom(wanted.position, goodFrom) : unknownPosition();
    observeGateway.resumed(start.reset ? "reset" : "replayed");
    return start;
  }

  async #replayFrom(position: number, goodFrom: number): Promise<Start> {
    const { lastSeq } = await this.deps.feed.state();
    if (position > lastSeq) return unknownPosition();
    if (position < goodFrom) return { position, reset: "registration_lost", replay: [] };
    // From the beginning: what was sent before the cut is not sent again when it was stored twice.
    const { notes, fault } = await this.#readOn(position, 0);
    return { position, reset: fault, replay: notes };
  }

  /** Reads from `start` on, remembers what was sent up to `position`, and returns what comes after it. */
  async #readOn(position: number, start: number): Promise<Reading> {
    const { feed, user } = this.deps;
    const notes: Note[] = [];
    let whole = true;
    await feed.read(user, start, (note) => {
      if (note.seq > position) notes.push(note);
      else if (note.content?.key) this.#seen.repeats(note.content.key);
      // From here on the live ones are known, so that reading need not run after who publishes.
      const previous = this.#held.first?.previous;
      whole = previous === undefined || note.seq < previous || note.seq <= position;
      return whole && notes.length < MOST_REPLAYED && !this.#ended;
    });
    const count = notes.length + this.#held.count;
    const state = await feed.state();
    const oldest = count >= state.perSubject ? await feed.oldestOf(user) : undefined;
    return { notes, whole, fault: incompleteness({ position, count, state, oldest }) };
  }

  async #catchUp(): Promise<void> {
    if (this.#catchingUp) return;
    this.#catchingUp = true;
    await this.#goLive(true);
  }

  /** Reads and sends what the stream holds after the position. */
  async #readRound(): Promise<void> {
    const aim = Math.max(this.#position, this.#held.highest);
    const { lastSeq } = await this.deps.feed.state();
    if (lastSeq < aim) return this.#startOver("stream_replaced", lastSeq);
    const { notes, whole, fault } = await this.#readOn(this.#position, this.#position);
    if (fault) return this.#startOver(fault, Math.max(lastSeq, this.#position));
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
        if (this.#held.highest <= this.#position) break;
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
    observeGateway.writing(note, () => this.#outlet?.write(blockOf(note as Note & { content: Content })));
    this.sent++;
    observeGateway.sent(note, replayed);
  }

  #startOver(reason: ResetReason, position: number): void {
    this.#position = position;
    // The old stream's sequences mean nothing in a new one.
    if (reason === "stream_replaced") this.#held.clear();
    this.#sendReset(reason);
  }

  #sendReset(reason: ResetReason): void {
    observeGateway.reset(reason);
    this.#outlet?.write(resetBlock(this.#position, reason));
  }
}

const unknownPosition = (): Start => ({ position: 0, reset: "unknown_position", replay: [] });
