import { chunked } from "../kernel/concurrency.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop } from "../kernel/loop.js";
import { createBatch } from "../kernel/sharing.js";
import { SECOND } from "../kernel/time.js";
import {
  type Connection,
  type Erased,
  isRefused,
  type LogoutsAmong,
  type Moment,
  type StreamRegistryStore,
} from "../state/index.js";
import { observeGateway } from "./observe.js";

interface StreamRegistryDeps {
  readonly store: StreamRegistryStore;
  readonly erased: Pick<Erased, "among">;
  readonly logoutsAmong: LogoutsAmong;
  /** Ends the streams of refused users. None of them is registered any more. */
  readonly end: (refused: Refused) => void;
  /** Returns ms since the epoch by the clock of Redis, by which fan-out decides who is listed. */
  readonly now: () => Promise<number>;
  readonly renewMs: number;
  readonly sweepMs: number;
  readonly windowMs: number;
  readonly log: Logger;
}

/** Erased users, and times before which tokens of others are refused. */
export interface Refused {
  readonly erased: ReadonlySet<string>;
  readonly logouts: ReadonlyMap<string, number>;
}

export interface Registration extends Connection {
  /** Name under which the store registers the stream: the user, or the reader of a list. */
  readonly reader: string;
  readonly issuedAt: number;
  /** False: fan-out stores nothing for its user; the registry only ends the stream of a refused user. */
  readonly isListener: boolean;
  listing: string;
  /**
   * The registry calls this after it has restored a lost registration. The `listing` may be another one then. Resolves to
   * false if nothing was lost: the stream is of a list that was deleted, and ends.
   */
  registeredAgain(): Promise<boolean>;
}

const stored = (registrations: readonly Registration[]): Connection[] =>
  registrations.map(({ id, reader, createdAt, listing }) => ({ id, user: reader, createdAt, listing }));

/** A listing that ends within this time counts as ended: the clock of Redis is read with an error, and commands take time. */
const MARGIN_MS = 10 * SECOND;
/** A call of this size blocks Redis for about 1 ms. */
export const REGISTRATIONS_A_CALL = 100;
const BETWEEN_SWEEPS_MS = 20;

/**
 * Keeps this process's streams registered, so that fan-out stores notifications for their users.
 *
 * No notifications are stored for a user who is not listed. So before a user is listed again, a name of the new listing
 * is stored. Clients get the name with each position, and a resume from a position of another listing gets a reset.
 */
export class StreamRegistry {
  readonly #registered = new Set<Registration>();
  readonly #loops: readonly Loop[];
  readonly #forget = createBatch(
    REGISTRATIONS_A_CALL,
    async (registrations: readonly Registration[]): Promise<void> => {
      try {
        await this.deps.store.remove(stored(registrations), await this.#moment());
      } catch (error) {
        this.deps.log.debug({ error: oneLine(error) }, "registrations were not removed; they expire");
      }
    },
  );

  constructor(private readonly deps: StreamRegistryDeps) {
    const { renewMs, sweepMs, log } = deps;
    const warn = (line: string) => (error: unknown) => log.warn({ error: oneLine(error) }, line);
    this.#loops = [
      startLoop({
        work: () => this.#renewAll(),
        everyMs: renewMs,
        firstAfterMs: renewMs,
        failed: warn("registrations were not renewed; they are tried again"),
      }),
      startLoop({
        work: () => this.#sweep(),
        everyMs: sweepMs,
        jitter: true,
        failed: warn("registrations of ended processes were not removed; the next sweep tries again"),
      }),
    ];
  }

  get size(): number {
    return this.#registered.size;
  }

  /** Ends the stream of a refused user. */
  async endRefused(registration: Registration): Promise<void> {
    await this.#withoutRefused([registration]);
  }

  /** Leaves out streams of refused users. */
  async register(all: readonly Registration[]): Promise<void> {
    const kept = await this.#withoutRefused(all);
    for (const registration of kept) if (!registration.isListener) this.#registered.add(registration);
    const listeners = kept.filter(({ isListener }) => isListener);
    if (listeners.length === 0) return;
    const listings = await this.deps.store.register(stored(listeners), await this.#moment());
    for (const [index, registration] of listeners.entries()) {
      registration.listing = listings[index] as string;
      this.#registered.add(registration);
    }
  }

  async remove(registration: Registration): Promise<void> {
    this.#registered.delete(registration);
    if (registration.isListener) await this.#forget(registration);
  }

  /** Removes the listing of an erased user, which would outlive their last stream. */
  async removeUser(user: string): Promise<void> {
    try {
      await this.deps.store.removeUser(user);
    } catch (error) {
      this.deps.log.debug({ error: oneLine(error) }, "the listing of an erased user was not removed; it expires");
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#loops.map((loop) => loop.close()));
  }

  async #renewAll(): Promise<void> {
    for (const part of chunked([...this.#registered], REGISTRATIONS_A_CALL)) await this.#renew(part);
  }

  async #renew(registered: readonly Registration[]): Promise<void> {
    const part = (await this.#withoutRefused(registered)).filter(({ isListener }) => isListener);
    if (part.length === 0) return;
    const gone = await this.deps.store.renew(stored(part), await this.#moment());
    const lost = part.filter(({ id }) => gone.has(id));
    observeGateway.registrations("renewed", part.length - lost.length);
    if (lost.length > 0) await this.#restore(lost);
  }

  async #restore(lost: readonly Registration[]): Promise<void> {
    const { store, log } = this.deps;
    const moment = await this.#moment();
    const kept = (await this.#withoutRefused(lost)).filter((entry) => this.#registered.has(entry));
    const listings = await store.register(stored(kept), moment);
    const closed = kept.filter((entry) => !this.#registered.has(entry));
    if (closed.length > 0) await store.remove(stored(closed), moment);
    const restored = kept.map((entry, index) => {
      entry.listing = listings[index] as string;
      return entry.registeredAgain();
    });
    // A renewal does not wait for the users service.
    void Promise.all(restored).then((all) => {
      const count = all.filter(Boolean).length;
      observeGateway.registrations("lost", count);
      if (count > 0) log.warn({ count }, "registrations were lost and are restored; their streams were reset");
    });
  }

  /** Ends the streams of refused users; returns those of others. */
  async #withoutRefused(registrations: readonly Registration[]): Promise<readonly Registration[]> {
    const users = [...new Set(registrations.map(({ user }) => user))];
    if (users.length === 0) return registrations;
    const [erased, logouts] = await Promise.all([this.deps.erased.among(users), this.deps.logoutsAmong(users)]);
    if (erased.size + logouts.size === 0) return registrations;
    this.deps.end({ erased, logouts });
    return registrations.filter(({ user, issuedAt }) => !erased.has(user) && !isRefused(issuedAt, logouts.get(user)));
  }

  async #moment(): Promise<Moment> {
    const now = await this.deps.now();
    return { now, listedSince: now - this.deps.windowMs + MARGIN_MS };
  }

  /** Removes registrations that a killed gateway has left, one for each of its streams. */
  async #sweep(): Promise<number | undefined> {
    const { connections, more } = await this.deps.store.sweep(await this.deps.now());
    observeGateway.registrations("swept", connections);
    return more ? BETWEEN_SWEEPS_MS : undefined;
  }
}
