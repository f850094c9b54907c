import { once } from "node:events";
import { createServer, connect as dial, type Server, type Socket } from "node:net";

/** The treatment of bytes: handed on, held back, or swallowed; the connection stays open meanwhile. */
export type Flow = "pass" | "pause" | "drop";

/** One direction of a proxy, as its clients see it. */
export type Direction = "toServer" | "toClient";

const DIRECTIONS = ["toServer", "toClient"] as const;

class Link {
  /** Bytes or an end were swallowed: what follows would make no sense to either side. */
  holed = false;
  silent = false;
  readonly held: Record<Direction, Buffer[]> = { toServer: [], toClient: [] };

  /** The address of the client is that of a socket that may be gone. */
  readonly origin: string;

  constructor(
    readonly client: Socket,
    readonly server: Socket,
  ) {
    this.origin = client.remoteAddress ?? "";
  }

  from(direction: Direction): Socket {
    return direction === "toServer" ? this.client : this.server;
  }

  to(direction: Direction): Socket {
    return direction === "toServer" ? this.server : this.client;
  }

  reset(): void {
    this.client.resetAndDestroy();
    this.server.resetAndDestroy();
  }
}

/**
 * A TCP proxy on loopback before one server: each direction passes, is held back or is swallowed; links can be cut, or
 * silenced one by one.
 */
export class TcpProxy {
  readonly #links = new Set<Link>();
  readonly #flows: Record<Direction, Flow> = { toServer: "pass", toClient: "pass" };
  readonly #swallowed: Record<Direction, number> = { toServer: 0, toClient: 0 };
  #refusing = false;
  #unheard: readonly string[] = [];
  #cutAfter = Number.POSITIVE_INFINITY;

  private constructor(
    private readonly listener: Server,
    private target: number,
  ) {
    listener.on("connection", (client) => this.#accept(client));
  }

  /** Opens a proxy before a port of loopback. */
  static async open(target: number): Promise<TcpProxy> {
    const listener = createServer({ noDelay: true });
    const proxy = new TcpProxy(listener, target);
    listener.listen(0, "127.0.0.1");
    await once(listener, "listening");
    return proxy;
  }

  /** Its address, for a client that would go to the server itself. */
  url(scheme: "redis" | "nats" | "http"): string {
    const address = this.listener.address();
    if (address === null || typeof address === "string") throw new Error("the proxy does not listen");
    return `${scheme}://127.0.0.1:${address.port}`;
  }

  /** Bytes swallowed so far. */
  swallowed(direction: Direction): number {
    return this.#swallowed[direction];
  }

  /** Bytes held back at this moment. */
  heldBack(direction: Direction): number {
    return [...this.#links].reduce((sum, { held }) => sum + Buffer.concat(held[direction]).byteLength, 0);
  }

  /** Sets what happens to both directions, or to one. Where bytes are missing the link is cut once it passes again. */
  set(flow: Flow, ...directions: readonly Direction[]): void {
    for (const direction of directions.length === 0 ? DIRECTIONS : directions) {
      this.#flows[direction] = flow;
      if (flow !== "pause") for (const link of this.#links) this.#release(link, direction);
    }
    this.#resetHoled();
  }

  /** Swallows the bytes of connections from these addresses, in both directions; those of others pass again. */
  swallowOf(...addresses: readonly string[]): void {
    this.#unheard = addresses;
    this.#resetHoled();
  }

  /** Swallows from now on all bytes of the connections there are; they stay open, and new ones pass. */
  silence(): void {
    for (const link of this.#links) link.silent = true;
  }

  /** Leads new connections to another port of loopback; those there are stay where they are. */
  aim(target: number): void {
    this.target = target;
  }

  /** Hands on this many bytes to clients, and then ends the connection that carries the last one. */
  cutAfter(bytes: number): void {
    this.#cutAfter = bytes;
  }

  /** Resets all connections; new ones are welcome. Returns how many there were. */
  cut(): number {
    const open = [...this.#links].filter(({ client }) => !client.destroyed);
    for (const link of open) link.reset();
    return open.length;
  }

  /** Resets all connections, and new ones too, until it is called with false. */
  refuse(on: boolean): void {
    this.#refusing = on;
    if (on) this.cut();
  }

  async close(): Promise<void> {
    this.refuse(true);
    for (const { server } of this.#links) server.destroy();
    this.listener.close();
    await once(this.listener, "close");
  }

  #accept(client: Socket): void {
    client.on("error", () => undefined);
    if (this.#refusing) return void client.resetAndDestroy();
    const server = dial({ port: this.target, host: "127.0.0.1", noDelay: true });
    server.on("error", () => undefined);
    const link = new Link(client, server);
    this.#links.add(link);
    for (const direction of DIRECTIONS) this.#join(link, direction);
  }

  #join(link: Link, direction: Direction): void {
    const [from, to] = [link.from(direction), link.to(direction)];
    from.on("data", (chunk: Buffer) => this.#take(link, direction, chunk));
    to.on("drain", () => from.resume());
    from.once("close", () => {
      // A client that is cut off half-way does not hear that the other end has gone.
      if (this.#flowOf(link, direction) !== "pass") link.holed = true;
      else to.destroy();
      if (link.client.destroyed && link.server.destroyed) this.#links.delete(link);
    });
  }

  #flowOf({ silent, origin }: Link, direction: Direction): Flow {
    return silent || this.#unheard.includes(origin) ? "drop" : this.#flows[direction];
  }

  #resetHoled(): void {
    if (DIRECTIONS.some((direction) => this.#flows[direction] !== "pass")) return;
    for (const link of this.#links)
      if (link.holed && !link.client.destroyed && !this.#unheard.includes(link.origin)) link.reset();
  }

  #take(link: Link, direction: Direction, chunk: Buffer): void {
    const flow = this.#flowOf(link, direction);
    if (flow === "pause") link.held[direction].push(chunk);
    else if (flow === "drop") {
      link.holed = true;
      this.#swallowed[direction] += chunk.byteLength;
    } else if (direction === "toClient" && chunk.byteLength >= this.#cutAfter) {
      link.client.end(chunk.subarray(0, this.#cutAfter));
      link.server.destroy();
      this.#cutAfter = Number.POSITIVE_INFINITY;
    } else {
      if (direction === "toClient") this.#cutAfter -= chunk.byteLength;
      if (!link.to(direction).write(chunk)) link.from(direction).pause();
    }
  }

  /** Bytes held back go on, in order; they arrive also where their sender has gone meanwhile. */
  #release(link: Link, direction: Direction): void {
    for (const chunk of link.held[direction].splice(0)) this.#take(link, direction, chunk);
    if (link.from(direction).destroyed) link.to(direction).end();
  }
}
