import fc from "fast-check";
import { NEWEST_COUNTS, type OutboxEvent, type OutboxSource } from "../../src/contracts/outbox.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { createDeadLetterStore } from "../../src/operators/dead-letters/store.nats.js";
import { createDeadLetterEvent, type DeadLetterEvent } from "../../src/outbox/dead-letter-event.js";
import { createPublishEvent } from "../../src/outbox/publish.nats.js";
import { EventRefused, type PublishEvent, type RelayDeps, startRelay } from "../../src/outbox/relay.js";
import { createOutboxStore } from "../../src/outbox/store.sql.js";
import type { Db } from "../../src/platform/db/db.js";
import type { NatsBench } from "./nats.js";

const OWNERS = { a: "x", b: "x", c: "y", d: "" } as const;

/** What becomes of an event each time it is published; an `odd` one has a subject that NATS refuses. */
export type Kind = "plain" | "odd" | "stubborn" | "large";

const events = fc.array(
  fc.record({
    key: fc.constantFrom(...(["a", "b", "c", "d"] as const)),
    kind: fc.constantFrom<Kind>("plain", "plain", "plain", "plain", "plain", "plain", "odd", "stubborn", "large"),
  }),
  { maxLength: 6 },
);

const death = fc.record({
  at: fc.constantFrom(...(["claim", "markPublished", "refuse", "release"] as const)),
  /** The database has done what the process asked for last. */
  after: fc.boolean(),
});

const relay = fc.record({
  slot: fc.integer({ min: 0, max: 2 }),
  limit: fc.integer({ min: 1, max: 6 }),
  /** Of events published one after the other. `unheard`: the PubAck is lost. */
  faults: fc.array(fc.constantFrom(...(["none", "none", "unheard", "outage"] as const)), { maxLength: 6 }),
  deadLettersFail: fc.boolean(),
  death: fc.option(death, { nil: undefined }),
});

type Events = typeof events extends fc.Arbitrary<infer T> ? T : never;
type Process = typeof relay extends fc.Arbitrary<infer T> ? T : never;

const step = fc.oneof(
  { weight: 2, arbitrary: fc.record({ does: fc.constant("write" as const), events }) },
  {
    weight: 4,
    arbitrary: fc.record({
      does: fc.constant("relay" as const),
      relays: fc.uniqueArray(relay, { minLength: 1, maxLength: 3, selector: ({ slot }) => slot }),
      meanwhile: events,
    }),
  },
  { weight: 2, arbitrary: fc.constant({ does: "expire" as const }) },
  { weight: 1, arbitrary: fc.constant({ does: "prune" as const }) },
);

/** Writes, relays that run at once and die, claims that expire. */
export const history = fc.array(step, { minLength: 3, maxLength: 14 });

type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;
type Store = RelayDeps["store"];
interface Written {
  readonly number: number;
  readonly key: string;
  readonly kind: Kind;
}

const FAULTLESS: Process = { slot: 0, limit: 500, faults: [], deadLettersFail: false, death: undefined };
const QUIET = { published: () => undefined, deadLettered: () => undefined, failed: () => undefined };
const LONG_MS = 600_000;
let made = 0;

/** An outbox on a database and NATS. What its relays do is compared with the invariants at every call. */
export class OutboxScene {
  /** By message id. */
  readonly written = new Map<string, Written>();
  readonly #stores = new Map<number, Store>();
  readonly #ids = new Map<number, string>();
  /** Claimed, or refused and not due yet; a claim of a process that died stays until it expires. */
  readonly #held = new Set<string>();
  readonly #stored = new Set<string>();
  readonly #marking = new Set<string>();
  readonly #marked = new Set<string>();
  readonly #faults: string[] = [];

  constructor(
    private readonly db: Db,
    private readonly nats: NatsBench,
    private readonly source: OutboxSource = "posts",
  ) {}

  /** Returns how the invariants were broken. */
  async run(steps: readonly Step[]): Promise<readonly string[]> {
    await this.db.run("TRUNCATE public.outbox");
    for (const stream of ["DROPS", "DLQ"]) await this.nats.manager.streams.purge(stream);
    for (const one of steps) await this.#take(one);
    await this.#drain();
    return this.#faults;
  }

  async #take(one: Step): Promise<void> {
    if (one.does === "write") await this.#write(one.events);
    else if (one.does === "expire") await this.#expire();
    else if (one.does === "prune") await createOutboxStore(this.db, this.source).prune(-1, 1_000);
    else await Promise.all([this.#write(one.meanwhile), ...one.relays.map((process) => this.#relay(process))]);
  }

  /** Without faults all events leave the outbox, each at the fifth refusal at the latest. */
  async #drain(): Promise<void> {
    for (let left = 6 * this.written.size + 1; left > 0; left--) {
      await this.#expire();
      await this.#relay({ ...FAULTLESS, slot: left % 3 });
      if ((await createOutboxStore(this.db, this.source).backlog()).waiting === 0) return;
    }
    this.#faults.push("events stay in the outbox");
  }

  async #write(all: Events): Promise<void> {
    for (const { key, kind } of all) {
      const number = made++;
      const name = `${key}:${number}`;
      // A relay may claim the event before this process knows that it is written.
      this.written.set(name, { number, key, kind });
      const subject = kind === "odd" ? "drops.a b" : "drops.created";
      await this.db.query(
        `INSERT INTO public.outbox (source, owner, key, subject, message_id, body)
         VALUES ($1, $2, $3, $4, $5, $6)`,
        [this.source, OWNERS[key], key, subject, name, JSON.stringify({ name })],
      );
    }
  }

  async #expire(): Promise<void> {
    await this.db.run("UPDATE public.outbox SET claimed_until = 0");
    this.#held.clear();
  }

  /** The rounds of a relay that is closed at once. */
  async #relay(process: Process): Promise<void> {
    const store = this.#stores.get(process.slot) ?? createOutboxStore(this.db, this.source);
    this.#stores.set(process.slot, store);
    const life = { ended: false };
    const mortal = mortalStore(this.#watched(store, process.limit), process.death, life);
    await startRelay({
      store: mortal,
      publish: this.#publish(process),
      deadLetter: this.#deadLetter(process, life),
      log: silent,
      observe: QUIET,
    }).close();
    if (life.ended) this.#stores.delete(process.slot);
  }

  #watched(store: Store, limit: number): Store {
    return {
      claim: async (_, leaseMs) => {
        const before = new Set(this.#marked);
        const claimed = await store.claim(limit, leaseMs);
        if (claimed.length > limit) this.#faults.push("more is claimed than was asked for");
        for (const event of claimed) this.#claimed(event, before);
        return claimed;
      },
      markPublished: async (ids) => {
        const names = this.#named(ids);
        for (const name of names) {
          if (!this.#stored.has(name)) this.#faults.push(`${name} is marked, and neither published nor dead-lettered`);
          this.#marking.add(name);
        }
        await store.markPublished(ids);
        for (const name of names) this.#marked.add(name);
      },
      release: async (ids) => {
        for (const name of this.#named(ids)) this.#held.delete(name);
        await store.release(ids);
      },
      refuse: (id) => store.refuse(id, LONG_MS),
    };
  }

  #named = (ids: readonly number[]): string[] => ids.map((id) => this.#ids.get(id) ?? "an event not claimed");

  #claimed({ id, key, messageId: name }: OutboxEvent, markedBefore: ReadonlySet<string>): void {
    const number = this.written.get(name)?.number as number;
    if (this.#held.has(name)) this.#faults.push(`${name} is claimed twice`);
    if (markedBefore.has(name)) this.#faults.push(`${name} is claimed again after its publication`);
    for (const [other, one] of this.written) {
      if (one.key !== key) continue;
      // What a newer event replaces is published by nobody.
      if (one.number < number && !NEWEST_COUNTS.has(this.source) && !this.#marking.has(other))
        this.#faults.push(`${name} is claimed before ${other}, of the same key`);
      if (one.number > number && this.#marking.has(other))
        this.#faults.push(`${name} is claimed after ${other}, of the same key`);
    }
    this.#ids.set(id, name);
    this.#held.add(name);
  }

  #publish({ faults }: Process): PublishEvent {
    const publish = createPublishEvent(this.nats.publish);
    const left = [...faults];
    return async (event) => {
      const fault = left.shift();
      const kind = this.written.get(event.messageId)?.kind;
      if (fault === "outage") throw new AppError("unavailable", "NATS is unavailable");
      if (kind === "stubborn") throw new EventRefused("poison", false, { cause: "refused" });
      if (kind === "large") throw new EventRefused("toolarge", true, { cause: "too large" });
      await publish(event);
      if (fault === "unheard") throw new AppError("unavailable", "the PubAck is lost");
      this.#stored.add(event.messageId);
    };
  }

  #deadLetter({ deadLettersFail }: Process, life: { readonly ended: boolean }): DeadLetterEvent {
    const storeDeadLetter = this.nats.publish;
    const deadLetter = createDeadLetterEvent({ source: "posts", storeDeadLetter, version: "1" });
    return async (event, failure) => {
      if (deadLettersFail || life.ended) throw new AppError("unavailable", "the DLQ is unavailable");
      await deadLetter(event, failure);
      this.#stored.add(event.messageId);
    };
  }

  /** Names in the log, and in the DLQ with the sequence and the number of refusals, oldest first. */
  async contents() {
    const log: string[] = [];
    const { state } = await this.nats.manager.streams.info("DROPS");
    for (let seq = state.first_seq; state.messages > 0 && seq <= state.last_seq; seq++)
      log.push(JSON.parse((await this.nats.manager.streams.getMessage("DROPS", { seq })).string()).name);
    const dead: { readonly name: string; readonly seq: number; readonly deliveries: number }[] = [];
    for await (const { body, summary } of createDeadLetterStore(this.nats.connection).read({ bodies: true }))
      dead.push({
        name: JSON.parse(Buffer.from(body).toString()).name,
        seq: summary.seq,
        deliveries: summary.deliveries ?? 0,
      });
    return { log, dead };
  }
}

/** The store of a process that dies at its first call of this kind, and does nothing any more. */
function mortalStore(store: Store, death: Process["death"], life: { ended: boolean }): Store {
  const until =
    <Asked extends unknown[], Result>(name: string, work: (...asked: Asked) => Promise<Result>) =>
    async (...asked: Asked): Promise<Result> => {
      const last = !life.ended && death?.at === name;
      if (life.ended || (last && !death.after)) {
        life.ended = true;
        throw new Error("the process has died");
      }
      const result = await work(...asked);
      if (!last) return result;
      life.ended = true;
      throw new Error("the process has died");
    };
  return {
    claim: until("claim", store.claim),
    markPublished: until("markPublished", store.markPublished),
    release: until("release", store.release),
    refuse: until("refuse", store.refuse),
  };
}
