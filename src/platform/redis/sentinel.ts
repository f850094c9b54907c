import { connect as connectTcp, Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import { AbstractConnector, Redis, type RedisOptions } from "ioredis";
import { AppError } from "../../kernel/errors.js";
import { startLoop } from "../../kernel/loop.js";
import { SECOND } from "../../kernel/time.js";
import { parseSentinelUrl, printableAddress } from "../../kernel/urls.js";
import { Refusal } from "../refusals.js";
import { PUBLIC_MESSAGE, redisError } from "./errors.js";

const LOOK_MS = SECOND;
/** The next sentinel is asked after that time. */
const TIMEOUT_MS = 2 * SECOND;
/** Sentinels tell each other so often which master they know. */
const HELLO_MS = 2 * SECOND;

/** After a failover the former master may take writes of a process for so long, unless both are cut off from the rest. */
export const LEAVE_MS = HELLO_MS + LOOK_MS + TIMEOUT_MS;

interface Address {
  readonly host: string;
  readonly port: number;
}

export type Sentinel = ReturnType<typeof openSentinel>;

/** Connects at the first question. A sentinel that has not answered one must be closed, and opened again. */
export function openSentinel(url: string, tls: ConnectionOptions | undefined) {
  const { host, port, name, sentinelUser, sentinelPassword } = parseSentinelUrl(url);
  const what = `Redis Sentinel ${printableAddress(url)}`;
  const link = new Redis({
    host,
    port,
    lazyConnect: true,
    enableReadyCheck: false,
    disableClientInfo: true,
    retryStrategy: null,
    connectTimeout: TIMEOUT_MS,
    commandTimeout: TIMEOUT_MS,
    ...(sentinelUser ? { username: sentinelUser } : {}),
    ...(sentinelPassword ? { password: sentinelPassword } : {}),
    ...(tls ? { tls } : {}),
  });
  let fault: unknown;
  // The answer that fails says only that the connection was closed.
  link.on("error", (error) => {
    fault = error;
  });
  const ask = (question: string): Promise<unknown> =>
    link.call("SENTINEL", question, name).catch((error: unknown) => {
      throw isUnknownCommand(error)
        ? refusal(`${what} is not a sentinel`, "name the ports of the sentinels in REDIS_URL, not those of Redis")
        : redisError(fault ?? error, what);
    });
  return {
    name,
    /** @throws Refusal if the sentinel knows no master of this name */
    async master(): Promise<Address> {
      const reply = await ask("GET-MASTER-ADDR-BY-NAME");
      if (!Array.isArray(reply))
        throw refusal(`${what} knows no master named ${name}`, "correct the name of the master in REDIS_URL");
      return { host: String(reply[0]), port: Number(reply[1]) };
    },
    /** @throws if the sentinels that work are too few for a failover */
    quorum: async (): Promise<void> => void (await ask("CKQUORUM")),
    close: (): void => {
      if (link.status !== "end") link.disconnect();
    },
  };
}

const isUnknownCommand = (error: unknown): boolean => /unknown command/i.test((error as Error).message);

const refusal = (message: string, advice: string): Refusal =>
  new Refusal(message, { publicMessage: PUBLIC_MESSAGE, advice });

/** A refusal is told rather than an outage of the other sentinels. */
function noMaster(faults: readonly AppError[]): AppError {
  const refused = faults.find((fault) => fault instanceof Refusal);
  const reasons = faults.map(({ message }) => message).join("; ");
  const message = `Redis: no sentinel tells the address of the master: ${reasons}`;
  return refused ?? new AppError("unavailable", message, { publicMessage: PUBLIC_MESSAGE });
}

interface MasterLookup {
  readonly sentinel: Sentinel;
  readonly master: Address;
}

/**
 * Leads a client of Redis to the master that the sentinels name, at each connection anew. While there is a connection, a
 * sentinel is asked every second: a master that is cut off from the sentinels, or was stopped for a while, still answers,
 * and what it takes is lost.
 */
export function followMaster(sentinelUrls: readonly string[]): NonNullable<RedisOptions["Connector"]> {
  return class extends AbstractConnector {
    readonly #tls: ConnectionOptions | undefined;
    /** The last that was asked is asked last, so that one that knows nothing new is left. */
    #urls = sentinelUrls;

    constructor(options: unknown) {
      const { disconnectTimeout, tls } = options as RedisOptions;
      super(disconnectTimeout as number);
      this.#tls = tls;
    }

    /** The client closes a connection to a server that is no master. The role is unknown if the server forbids INFO. */
    override check({ role }: { readonly role?: string }): boolean {
      return role === undefined || role === "master";
    }

    /** The client would wait two seconds for the close of a socket that is closed already. */
    override disconnect(): void {
      if (this.stream?.closed) this.connecting = false;
      else super.disconnect();
    }

    /** Never rejects: the client would not try again. It takes a closed socket for a connection that failed. */
    override async connect() {
      this.connecting = true;
      delete this.firstError;
      try {
        const master = await this.#seek();
        if (this.connecting) return this.#follow(master);
        master.sentinel.close();
      } catch (error) {
        if (this.connecting) this.firstError = error as Error;
      }
      this.stream = new Socket().destroy();
      return this.stream;
    }

    async #seek(): Promise<MasterLookup> {
      const faults: AppError[] = [];
      for (const url of this.#urls) {
        this.#urls = [...this.#urls.filter((other) => other !== url), url];
        const sentinel = openSentinel(url, this.#tls);
        try {
          return { sentinel, master: await sentinel.master() };
        } catch (error) {
          sentinel.close();
          faults.push(error as AppError);
        }
        if (!this.connecting) break;
      }
      throw noMaster(faults);
    }

    #follow({ sentinel: first, master }: MasterLookup): Socket {
      const stream = this.#tls ? connectTls({ ...master, ...this.#tls }) : connectTcp(master);
      this.stream = stream;
      stream.once("error", (error) => {
        this.firstError = error;
      });
      let sentinel = first;
      const ask = async (): Promise<Address> => {
        try {
          return await sentinel.master();
        } catch {
          sentinel.close();
          const located = await this.#seek();
          sentinel = located.sentinel;
          return located.master;
        }
      };
      const look = async (): Promise<void> => {
        const { host, port } = await ask();
        if (stream.destroyed) sentinel.close();
        else if (host !== master.host || port !== master.port) stream.destroy();
      };
      const loop = startLoop({ work: look, everyMs: LOOK_MS, firstAfterMs: LOOK_MS });
      stream.once("close", () => {
        void loop.close();
        sentinel.close();
      });
      return stream;
    }
  };
}
