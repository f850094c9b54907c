import type { Service } from "./service.js";
import type { Stack } from "./stack.js";

export type ProcessOptions = {
  readonly roles: string;
  readonly env: Readonly<Record<string, string>>;
  /** The failpoints are armed until processes have died so often; later processes run without them. */
  readonly failpoints?: string | undefined;
  readonly deathsMax?: number;
  /** See `ServiceOptions`. */
  readonly command?: readonly string[] | undefined;
};

/** A process that fails to start more often has another reason than its failpoints. */
const MAX_FAILED_STARTS = 10;

/** Starts processes of the service again whenever they die, as a supervisor would. */
export class Supervisor {
  deaths = 0;
  /** A process died last at this time, in ms since the epoch. */
  lastDeathAt = 0;
  readonly #running = new Set<Service>();
  readonly #supervising: Promise<void>[] = [];
  #stopped = false;
  #failedStarts = 0;

  constructor(private readonly stack: Stack) {}

  /** Starts one process. Resolves once it is ready for the first time. */
  async start(options: ProcessOptions): Promise<Service> {
    const first = await this.#start(options);
    this.#supervising.push(this.#keep(options, first));
    return first;
  }

  get running(): readonly Service[] {
    return [...this.#running];
  }

  signal(name: NodeJS.Signals): void {
    for (const service of this.#running) service.signal(name);
  }

  /** Ends all processes, and starts none again. */
  async stopAll(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.running.map((service) => service.stop()));
    await Promise.allSettled(this.#supervising);
  }

  async #keep(options: ProcessOptions, first: Service): Promise<void> {
    for (let service: Service | undefined = first; service !== undefined; ) {
      const { signal } = await service.exited;
      this.#running.delete(service);
      if (this.#stopped) return;
      if (signal === "SIGKILL") this.#countDeath();
      service = await this.#start(options);
      if (this.#stopped) await service.stop();
    }
  }

  /** A process that dies before it is ready counts as a death, and the next one is started. */
  async #start(options: ProcessOptions): Promise<Service> {
    const { roles, env, failpoints, deathsMax = Number.POSITIVE_INFINITY, command } = options;
    for (;;) {
      const armed = failpoints !== undefined && this.deaths < deathsMax;
      const own = armed ? { ...env, AVION_TEST_FAILPOINTS: failpoints } : env;
      try {
        const service = await this.stack.start({ roles, env: own, ...(command && { command }) });
        this.#running.add(service);
        return service;
      } catch (error) {
        // An armed process may die before it is ready, and any process may start while a server it waits for is
        // unavailable.
        this.#failedStarts += 1;
        if (this.#stopped || this.#failedStarts > MAX_FAILED_STARTS) throw error;
        if (armed) this.#countDeath();
      }
    }
  }

  #countDeath(): void {
    this.deaths += 1;
    this.lastDeathAt = Date.now();
  }
}
