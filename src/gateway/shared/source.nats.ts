import type { NatsConnection } from "nats";
import { LIVE_SHARED, STREAM } from "../../contracts/subjects.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { pause, SECOND } from "../../kernel/time.js";
import { createSubjectFeed, type SubjectFeed, type SubjectMessage } from "../../platform/nats/feed.js";
import { logEntries } from "../../platform/nats/read-log.js";
import { readShared } from "../notification.js";
import type { SharedLog } from "./log.js";

/** Maximum number of live messages that are kept while the stream is read. Later ones are read from the stream. */
const MOST_PENDING = 4_096;
/** Time after which a message is found that core NATS lost and no other message followed. */
const CHECK_MS = 5 * SECOND;
/** Pause before the next attempt to read while NATS does not answer. */
const AGAIN_MS = SECOND / 4;
const PATIENCE_MS = 5 * SECOND;

export interface SourceDeps {
  readonly nats: NatsConnection;
  readonly shared: SharedLog;
  /** Callback: called after messages were added, or the log was begun anew. */
  readonly changed: () => void;
  /** Callback: called for each user whose relations changed. Undefined stands for all users. */
  readonly relationsChanged: (user: string | undefined) => void;
  readonly log: Logger;
}

/**
 * Fills the log of a gateway with the messages of SHARED: first what the stream has, then what is republished. A live
 * message that does not follow the last one begins another reading. If the stream lacks a message after the last one, or
 * was replaced, the log begins anew.
 */
export class SharedSource {
  /** When the stream was created that the log is of, ms since the epoch. */
  #createdAt: number | undefined;
  #isCurrent = false;
  #isReady = false;
  #becameReady: () => void = () => undefined;
  readonly #ready = new Promise<void>((resolve) => {
    this.#becameReady = resolve;
  });
  #isClosed = false;
  #pending: SubjectMessage[] = [];
  #isOverfull = false;
  readonly #feed: SubjectFeed;
  readonly #unfollow: () => void;
  readonly #reading: Loop;

  constructor(private readonly deps: SourceDeps) {
    this.#feed = createSubjectFeed(deps.nats, STREAM.shared, () => this.#lose());
    this.#unfollow = this.#feed.follow(LIVE_SHARED, (message) => this.#hear(message));
    this.#reading = startLoop({
      everyMs: AGAIN_MS,
      closeMs: SECOND,
      work: () => this.#look(),
      failed: (error, failures) => {
        this.#isCurrent = false;
        if (failures === 1)
          deps.log.warn(
            { error: oneLine(error) },
            "changes of local and global could not be read; the gateway tries again",
          );
      },
    });
  }

  /** Resolves to the last sequence of the stream: the log may be behind. */
  async lastSeq(): Promise<number> {
    return (await this.#feed.state()).lastSeq;
  }

  /** Resolves once the log was filled for the first time. @throws AppError `unavailable` if that takes seconds */
  async filled(): Promise<void> {
    if (this.#isReady) return;
    await Promise.race([this.#ready, pause(PATIENCE_MS)]);
    if (!this.#isReady) throw new AppError("unavailable", "the changes of local and global are not read yet");
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#unfollow();
    this.#feed.close();
    await this.#reading.close();
  }

  #lose(): void {
    this.#isCurrent = false;
    this.#reading.wake();
  }

  #hear(message: SubjectMessage): void {
    const { seq, body, otherStream } = message;
    const { shared, changed } = this.deps;
    if (otherStream !== undefined) return;
    if (this.#isCurrent && this.#feed.current() === this.#createdAt && seq === shared.last + 1) {
      this.#take(seq, body);
      return changed();
    }
    if (this.#isCurrent && seq > shared.last) this.#lose();
    if (this.#isCurrent) return;
    if (this.#pending.length < MOST_PENDING) this.#pending.push(message);
    else this.#isOverfull = true;
  }

  #take(seq: number, body: Uint8Array): void {
    const { shared, relationsChanged } = this.deps;
    const message = readShared(body);
    if (message === undefined || "viewer" in message) shared.pass(seq);
    else shared.add(seq, message);
    if (message !== undefined && "viewer" in message) relationsChanged(message.viewer);
  }

  #begin(seq: number, createdAt: number): void {
    this.#createdAt = createdAt;
    this.deps.shared.begin(seq, createdAt);
    this.deps.relationsChanged(undefined);
  }

  /** Looks for missed messages. Resolves to the time until the next look, ms. */
  async #look(): Promise<number> {
    const { shared, changed } = this.deps;
    if (this.#isCurrent) {
      const { lastSeq, createdAt } = await this.#feed.state();
      // Everything that the server sent before has arrived then.
      await this.#feed.flushed();
      if (lastSeq > shared.last || createdAt !== this.#createdAt) this.#isCurrent = false;
    }
    if (!this.#isCurrent) this.#isCurrent = await this.#catchUp();
    if (this.#isCurrent && !this.#isReady) this.#becameReady();
    this.#isReady ||= this.#isCurrent;
    changed();
    return this.#isCurrent ? CHECK_MS : AGAIN_MS / 5;
  }

  /** Reads what the stream has after the last message. Resolves to true if nothing is missing. */
  async #catchUp(): Promise<boolean> {
    const { nats, shared } = this.deps;
    await this.#feed.flushed();
    const { createdAt, firstSeq, lastSeq } = await this.#feed.state();
    // A stream that never stored anything may name 0 as its first sequence.
    const floor = Math.max(1, firstSeq) - 1;
    const isSame = createdAt === this.#createdAt && lastSeq >= shared.last;
    if (!isSame || floor > shared.last) this.#begin(floor, createdAt);
    for await (const { seq, body } of logEntries(nats, { stream: STREAM.shared, subject: ">", after: shared.last })) {
      if (this.#isClosed) return false;
      // Messages of erased users are removed; others may have aged out during the read.
      if (seq !== shared.last + 1) this.#begin(seq - 1, createdAt);
      this.#take(seq, body);
    }
    for (const { seq, body } of this.#pending) if (seq === shared.last + 1) this.#take(seq, body);
    const isWhole = !this.#isOverfull && (this.#pending.at(-1)?.seq ?? 0) <= shared.last;
    this.#pending = [];
    this.#isOverfull = false;
    return isWhole && this.#feed.current() === this.#createdAt;
  }
}
