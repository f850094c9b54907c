import { Events, type JetStreamManager, type NatsConnection, type Subscription } from "nats";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";
import { managerOf } from "./ask.js";
import { readTopology, type Topology } from "./declared.js";
import { readCreated, TopologyRefusal } from "./topology.js";

/** Looks after the declared streams and consumers while the process runs. */
export interface TopologyWatch {
  /** What is missing or not known at the moment; undefined where everything declared is there. */
  fault(): string | undefined;
  /** False while there is no connection. */
  connected(): boolean;
  /** Looks at once: a caller has met something that is gone. */
  look(): void;
  /** Calls back whenever what the streams hold may have been lost: one was found missing or replaced, or the link was. */
  onDoubt(listener: () => void): void;
  close(): void;
}

interface WatchDeps {
  readonly connection: NatsConnection;
  /** Creates what is missing. */
  readonly apply: (manager: JetStreamManager) => Promise<void>;
  readonly log: Logger;
}

/** Advisories tell of a deletion at once; this finds what they did not. */
const LOOK_MS = 10 * SECOND;
/** After a fault, until a look finds everything in place. */
const LOOK_AGAIN_MS = SECOND;

/**
 * Watches the declared streams and consumers: looks after each reconnect, when a
 * deletion is announced, and now and then. What is missing, or was created by
 * somebody else, is applied again; the fault stands until a later look finds
 * everything in place.
 */
export async function watchTopology({ connection, apply, log }: WatchDeps): Promise<TopologyWatch> {
  const watch = new Watch(connection, apply, log);
  await watch.start();
  return {
    fault: () => watch.fault,
    connected: () => watch.connected,
    look: () => watch.wake(),
    onDoubt: (listener) => void watch.listeners.push(listener),
    close: () => watch.close(),
  };
}

class Watch {
  fault: string | undefined;
  connected = true;
  readonly listeners: (() => void)[] = [];
  #declared: Topology = { streams: [], consumers: [] };
  #known: ReadonlyMap<string, string> = new Map();
  readonly #told = new Set<string>();
  #woken = new AbortController();
  readonly #closing = new AbortController();
  readonly #subscriptions: Subscription[] = [];

  constructor(
    private readonly connection: NatsConnection,
    private readonly apply: WatchDeps["apply"],
    private readonly log: Logger,
  ) {}

  async start(): Promise<void> {
    this.#declared = await readTopology();
    this.#known = await readCreated(await managerOf(this.connection), this.#declared);
    const { streams, consumers } = this.#declared;
    for (const { name } of streams) this.#announced(`STREAM.DELETED.${name}`, `stream ${name}`);
    for (const { stream, config } of consumers)
      this.#announced(`CONSUMER.DELETED.${stream}.${config.durable_name}`, `consumer ${config.durable_name}`);
    void this.#followLink();
    void this.#run();
  }

  wake(): void {
    this.#woken.abort();
  }

  close(): void {
    this.#closing.abort();
    this.wake();
    for (const subscription of this.#subscriptions) if (!this.connection.isClosed()) subscription.unsubscribe();
  }

  #announced(event: string, what: string): void {
    const callback = (error: Error | null): void => {
      // Without the permission to hear advisories, the looks every few seconds find the same.
      if (!error) this.#doubt(`NATS: ${what} is gone`);
    };
    this.#subscriptions.push(this.connection.subscribe(`$JS.EVENT.ADVISORY.${event}`, { callback }));
  }

  #doubt(fault: string): void {
    this.fault = fault;
    for (const listener of this.listeners) listener();
    this.wake();
  }

  async #followLink(): Promise<void> {
    for await (const { type } of this.connection.status()) {
      if (type === Events.Disconnect) this.connected = false;
      if (type !== Events.Reconnect) continue;
      this.connected = true;
      // A server that comes back without its data is first seen here.
      this.#doubt("NATS: its streams are being looked at after a reconnect");
    }
  }

  async #run(): Promise<void> {
    while (!this.#closing.signal.aborted) {
      const wait = this.fault === undefined ? LOOK_MS * (0.8 + 0.4 * Math.random()) : LOOK_AGAIN_MS;
      await pause(wait, this.#woken.signal);
      this.#woken = new AbortController();
      if (this.#closing.signal.aborted || !this.connected) continue;
      await this.#lookOnce().catch((error: unknown) => this.#failed(error));
    }
  }

  async #lookOnce(): Promise<void> {
    const manager = await managerOf(this.connection);
    const doubted = this.#woken;
    const held = await readCreated(manager, this.#declared);
    const lost = this.#lostOf(held);
    if (lost.length === 0) {
      // What was announced during the look is for the next one.
      if (!doubted.signal.aborted) this.fault = undefined;
      this.#told.clear();
      return;
    }
    const gone = `NATS: ${lost.join(", ")} ${lost.length === 1 ? "is" : "are"} gone`;
    if (!this.#told.has(gone)) this.fault = gone;
    this.#tell(gone, "streams or consumers are gone or were replaced; what is declared is applied again");
    for (const listener of this.listeners) listener();
    await this.apply(manager);
    this.fault = gone;
    this.#known = await readCreated(manager, this.#declared);
    this.log.warn({ lost }, "streams and consumers are in place again");
  }

  /** Declared names that are missing, or were created at another time than when they were last applied. */
  #lostOf(held: ReadonlyMap<string, string>): string[] {
    const { streams, consumers } = this.#declared;
    const names = [
      ...streams.map(({ name }) => name),
      ...consumers.map(({ stream, config }) => `${stream}.${config.durable_name}`),
    ];
    return names.filter((name) => !held.has(name) || held.get(name) !== this.#known.get(name));
  }

  #failed(error: unknown): void {
    const said = oneLine(error);
    if (!(error instanceof TopologyRefusal)) return this.log.warn({ error: said }, "streams could not be looked at");
    this.fault = said;
    this.#tell(said, "a stream or consumer is not as declared; it is tried again");
  }

  /** Once, and not again every second. */
  #tell(fault: string, message: string): void {
    if (!this.#told.has(fault)) this.log.error({ fault }, message);
    this.#told.add(fault);
  }
}
