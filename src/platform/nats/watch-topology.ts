import { Events, type JetStreamManager, type NatsConnection, type Subscription } from "nats";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";
import { managerOf } from "./ask.js";
import { readTopology, type Topology } from "./declared.js";
import { readCreated, TopologyRefusal } from "./topology.js";

/** Finds a deletion whose advisory was missed. */
const CHECK_MS = 10 * SECOND;
const CHECK_AGAIN_MS = SECOND;
/**
 * A server tells of a deletion before it has removed the files. With them it removes those of a stream that is made
 * meanwhile under the same name (seen with 2.9.10): that one stores messages and never hands them out.
 */
const REMOVAL_MS = 3 * SECOND;

interface WatchDeps {
  readonly connection: NatsConnection;
  readonly apply: (manager: JetStreamManager) => Promise<void>;
  /** Number of streams that share the notifications. Default: 1. */
  readonly notifyParts?: number | undefined;
  readonly log: Logger;
}

/** Applies what is missing, or was created by somebody else, again; a later check clears the fault. */
export async function watchTopology(deps: WatchDeps): Promise<TopologyWatch> {
  const watch = new TopologyWatch(deps);
  await watch.start();
  return watch;
}

export class TopologyWatch {
  fault: string | undefined;
  connected = true;
  readonly #listeners: (() => void)[] = [];
  #declared: Topology = { streams: [], consumers: [] };
  #known: ReadonlyMap<string, string> = new Map();
  #missing = { names: "", since: 0 };
  readonly #told = new Set<string>();
  #unchecked = false;
  readonly #subscriptions: Subscription[] = [];
  #loop: Loop | undefined;
  #announcements = 0;

  constructor(private readonly deps: WatchDeps) {}

  async start(): Promise<void> {
    this.#declared = await readTopology(this.deps.notifyParts);
    this.#known = await readCreated(await managerOf(this.deps.connection), this.#declared);
    const { streams, consumers } = this.#declared;
    for (const { name } of streams) this.#announced(`STREAM.DELETED.${name}`, `stream ${name}`);
    for (const { stream, config } of consumers)
      this.#announced(`CONSUMER.DELETED.${stream}.${config.durable_name}`, `consumer ${config.durable_name}`);
    void this.#followLink();
    this.#loop = startLoop({ everyMs: CHECK_MS, firstAfterMs: CHECK_MS, work: () => this.#round() });
  }

  check(): void {
    this.#announcements++;
    this.#loop?.wake();
  }

  /** Calls back when streams may have lost messages: one was missing or replaced, or the link was down. */
  onPossibleLoss(listener: () => void): void {
    this.#listeners.push(listener);
  }

  close(): void {
    void this.#loop?.close();
    for (const subscription of this.#subscriptions) if (!this.deps.connection.isClosed()) subscription.unsubscribe();
  }

  #announced(event: string, what: string): void {
    const callback = (error: Error | null): void => {
      // The checks find the same if the permission to hear advisories is missing.
      if (!error) this.#suspect(`NATS: ${what} is gone`);
    };
    this.#subscriptions.push(this.deps.connection.subscribe(`$JS.EVENT.ADVISORY.${event}`, { callback }));
  }

  #suspect(fault: string): void {
    this.fault = fault;
    for (const listener of this.#listeners) listener();
    this.check();
  }

  async #followLink(): Promise<void> {
    for await (const { type } of this.deps.connection.status()) {
      if (type === Events.Disconnect) this.connected = false;
      if (type !== Events.Reconnect) continue;
      this.connected = true;
      // A server that comes back without its data is first noticed here.
      this.#suspect("NATS: its streams are being checked after a reconnect");
    }
  }

  async #round(): Promise<number> {
    if (this.connected) await this.#checkOnce().catch((error: unknown) => this.#failed(error));
    return this.fault === undefined ? CHECK_MS * (0.8 + 0.4 * Math.random()) : CHECK_AGAIN_MS;
  }

  async #checkOnce(): Promise<void> {
    const manager = await managerOf(this.deps.connection);
    const before = this.#announcements;
    const created = await readCreated(manager, this.#declared);
    const lost = this.#lostOf(created);
    const missing = lost.filter((name) => !created.has(name)).join();
    if (missing !== this.#missing.names) this.#missing = { names: missing, since: performance.now() };
    if (lost.length === 0) {
      // An announcement during the check is for the next one.
      if (before === this.#announcements) this.fault = undefined;
      this.#told.clear();
      this.#unchecked = false;
      return;
    }
    const gone = `NATS: ${lost.join(", ")} ${lost.length === 1 ? "is" : "are"} gone`;
    if (!this.#told.has(gone)) this.fault = gone;
    this.#tell(gone, "streams or consumers are gone or were replaced; what is declared is applied again");
    for (const listener of this.#listeners) listener();
    if (missing !== "" && performance.now() < this.#missing.since + REMOVAL_MS) return;
    await this.deps.apply(manager);
    this.fault = gone;
    this.#known = await readCreated(manager, this.#declared);
    this.deps.log.warn({ lost }, "streams and consumers are in place again");
  }

  /** Returns what is missing, or was created at another time than when it was last applied. */
  #lostOf(created: ReadonlyMap<string, string>): string[] {
    const { streams, consumers } = this.#declared;
    const names = [
      ...streams.map(({ name }) => name),
      ...consumers.map(({ stream, config }) => `${stream}.${config.durable_name}`),
    ];
    return names.filter((name) => !created.has(name) || created.get(name) !== this.#known.get(name));
  }

  #failed(error: unknown): void {
    const said = oneLine(error);
    if (!(error instanceof TopologyRefusal)) {
      if (!this.#unchecked)
        this.deps.log.warn({ error: said }, "the JetStream streams could not be checked; it is tried again");
      this.#unchecked = true;
      return;
    }
    this.fault = said;
    this.#tell(said, "a stream or consumer is not as declared; it is tried again");
  }

  #tell(fault: string, message: string): void {
    if (!this.#told.has(fault)) this.deps.log.error({ fault }, message);
    this.#told.add(fault);
  }
}
