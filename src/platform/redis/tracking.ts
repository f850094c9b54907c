import { EventEmitter } from "node:events";
import type { Redis } from "ioredis";
import { AppError, oneLine } from "../../kernel/errors.js";
import { type Logger, silent } from "../../kernel/logger.js";
import { startLoop } from "../../kernel/loop.js";
import { coalesce, oncePerTurn } from "../../kernel/sharing.js";
import { SECOND } from "../../kernel/time.js";
import { connectRedis } from "./connect.js";
import type { Scripts } from "./scripts.js";
import { fieldsOf } from "./servers.js";

const INVALIDATIONS = "__redis__:invalidate";
const TRY_MS = SECOND / 4;

interface Announcements {
  /** A followed key has changed, and is followed no longer. */
  changed: [key: string];
  published: [message: string];
  /** No key is followed any longer; each may have changed. */
  lost: [];
}

/** Changes of keys in Redis, as the server announces them to this process. */
export type Tracking = ReturnType<typeof trackChanges>;

interface TrackingDeps {
  readonly scripts: Scripts;
  readonly urls: readonly string[];
  /** Its messages are announced, too, each in its place among the changes. */
  readonly channel: string;
  readonly log: Logger;
}

/**
 * Follows keys read over the connection of `scripts` (client-side caching by CLIENT TRACKING). The client takes no
 * invalidations, so that a connection of their own gets them, as messages of RESP2.
 *
 * A key is followed by a command of its own: before Redis 7.2 the keys that a script names are tracked, later those that
 * it reads. Changes and messages come over one connection in the order in which they happened, and so does the answer to
 * a ping: after it, all earlier ones are known. The server forgets what a connection that it has closed had followed; a
 * ping there shows that it has not.
 */
export function trackChanges({ scripts, urls, channel, log }: TrackingDeps) {
  const client = scripts.client as Redis;
  const listener = connectRedis(urls, silent, { protocol: 2, autoResubscribe: false }) as Redis;
  const announcements = new EventEmitter<Announcements>();
  let listening: Listening | undefined;
  /** Counts the connections of both that have closed. */
  let closed = 0;
  let on = false;

  const end = (): void => {
    closed++;
    if (on) announcements.emit("lost");
    on = false;
  };
  client.on("close", end);
  listener.on("close", () => {
    listening = undefined;
    end();
  });
  listener.on("messageBuffer", (from: string | Buffer, message: Buffer | readonly Buffer[] | null) => {
    if (String(from) === channel) announcements.emit("published", String(message));
    else if (message === null) announcements.emit("lost");
    else for (const key of [message].flat()) announcements.emit("changed", String(key));
  });

  const begin = async (): Promise<void> => {
    if (on || client.status !== "ready" || listener.status !== "ready") return;
    const before = closed;
    try {
      listening ??= await listen(listener, channel);
      if ((await runIdOf(client)) !== listening.runId)
        throw new AppError("unavailable", "the connections lead to different servers");
      await client.call("CLIENT", "TRACKING", "ON", "REDIRECT", listening.id, "OPTIN");
    } catch (error) {
      listener.disconnect(true);
      throw error;
    }
    on = closed === before;
  };
  const loop = startLoop({
    work: begin,
    everyMs: TRY_MS,
    backoffCapMs: 10 * SECOND,
    failed: (error, failures) => {
      if (failures === 3)
        log.warn({ error: oneLine(error) }, "changes in Redis cannot be followed: pages are not cached");
    },
    closeMs: SECOND,
  });

  const ping = async (): Promise<boolean> => {
    const before = closed;
    try {
      await Promise.all([listener.ping(), scripts.command("ping", () => client.ping())]);
    } catch {
      listener.disconnect(true);
      end();
    }
    return on && closed === before;
  };
  const settled = oncePerTurn(coalesce(ping));
  return {
    announcements,
    /** Returns false while keys cannot be followed. */
    isOn: (): boolean => on,
    /** The first change that comes after a command sent later is announced. Resolves to false where keys are not followed. */
    follow: async (keys: readonly string[]): Promise<boolean> => {
      const before = closed;
      const ask = () => Promise.all([client.call("CLIENT", "CACHING", "YES"), client.exists(...keys)]);
      return scripts.command("exists", ask).then(
        () => on && closed === before,
        () => false,
      );
    },
    /** Resolves once everything is announced that happened before the call; to false where it may not have been. */
    upToDate: (): Promise<boolean> => (on ? settled() : Promise.resolve(false)),
    close: async (): Promise<void> => {
      await loop.close();
      listener.disconnect();
    },
  };
}

interface Listening {
  readonly id: number;
  readonly runId: string | undefined;
}

async function listen(listener: Redis, channel: string): Promise<Listening> {
  const [id, runId] = await Promise.all([listener.client("ID"), runIdOf(listener)]);
  await listener.subscribe(INVALIDATIONS, channel);
  return { id, runId };
}

const runIdOf = async (server: Redis): Promise<string | undefined> =>
  fieldsOf(await server.info("server")).get("run_id");
