import type { Service } from "./service.js";
import type { Stack } from "./stack.js";

/** Options of a supervised process. */
export type Post = {
  readonly roles: string;
  readonly env: Readonly<Record<string, string>>;
  /** Armed (TIMELINE_FAILPOINTS) until the crew has died so often; then it runs unharmed. */
  readonly failpoints?: string | undefined;
  readonly deathsMax?: number;
  /** As in `ServiceOptions`. */
  readonly command?: readonly string[] | undefined;
};

/** More of them than this is no bad luck. */
const STILLBORN_MAX = 10;

/** Processes of the service that are started again whenever they die, as a supervisor would. */
export class Crew {
  deaths = 0;
  /** When one died last, in ms since the epoch. */
  lastDeathAt = 0;
  readonly #running = new Set<Service>();
  readonly #posts: Promise<void>[] = [];
  #dismissed = false;
  #stillborn = 0;

  constructor(private readonly stack: Stack) {}

  /** Starts one process; resolves once it is ready for the first time. */
  async man(post: Post): Promise<Service> {
    const first = await this.#start(post);
    this.#posts.push(this.#keep(post, first));
    return first;
  }

  get running(): readonly Service[] {
    return [...this.#running];
  }

  signal(name: NodeJS.Signals): void {
    for (const service of this.#running) service.signal(name);
  }

  /** Ends all of them and starts none again. */
  async dismiss(): Promise<void> {
    this.#dismissed = true;
    await Promise.all(this.running.map((service) => service.stop()));
    await Promise.allSettled(this.#posts);
  }

  async #keep(post: Post, first: Service): Promise<void> {
    for (let service: Service | undefined = first; service !== undefined; ) {
      const { signal } = await service.exited;
      this.#running.delete(service);
      if (this.#dismissed) return;
      if (signal === "SIGKILL") this.#mourn();
      service = await this.#start(post);
      if (this.#dismissed) await service.stop();
    }
  }

  /** One that dies before it is ready has died, and the next is started. */
  async #start(post: Post): Promise<Service> {
    const { roles, env, failpoints, deathsMax = Number.POSITIVE_INFINITY, command } = post;
    for (;;) {
      const armed = failpoints !== undefined && this.deaths < deathsMax;
      const own = armed ? { ...env, TIMELINE_FAILPOINTS: failpoints } : env;
      try {
        const service = await this.stack.start({ roles, env: own, ...(command && { command }) });
        this.#running.add(service);
        return service;
      } catch (error) {
        // One that is armed may die before it is ready; any may be started while what it waits for is unavailable.
        this.#stillborn += 1;
        if (this.#dismissed || this.#stillborn > STILLBORN_MAX) throw error;
        if (armed) this.#mourn();
      }
    }
  }

  #mourn(): void {
    this.deaths += 1;
    this.lastDeathAt = Date.now();
  }
}
