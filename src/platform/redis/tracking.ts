import { EventEmitter } from "node:events";
import type { Redis } from "ioredis";
import { allOf, grouped } from "../../kernel/concurrency.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { startLoop } from "../../kernel/loop.js";
import { coalesce, oncePerTurn } from "../../kernel/sharing.js";
import { SECOND } from "../../kernel/time.js";
import { listenerBeside } from "./connect.js";
import type { Scripts } from "./scripts.js";
import { fieldsOf } from "./servers.js";

const INVALIDATIONS = "__redis__:invalidate";
const TRY_MS = SECOND / 4;

interface Announcements {
  /** A followed key has changed, and is followed no longer. */
  changed: [key: string];
  published: [message: string];
  /** No key is followed any longer; each may have changed. If it is the publisher's, messages may be missing, too. */
  lost: [isPublisher: boolean];
}

/** Changes of keys in Redis, as its servers announce them to this process. */
export type Tracking = ReturnType<typeof trackChanges>;

interface TrackingDeps {
  readonly scripts: Scripts;
  /** Messages of this channel are announced, too, each in its place among the changes of the server that holds `publisher`. */
  readonly channel: string;
  /** A script that changes this key publishes the messages. */
  readonly publisher: string;
  readonly log: Logger;
  /** Opens the connection over which a server announces; the default is one like the server's own. */
  readonly listen?: (server: Redis) => Redis;
}

/**
 * Follows keys read over the connections of `scripts`: each server of a cluster by itself, from the first question about
 * one of its keys on.
 */
export function trackChanges(deps: TrackingDeps) {
  const { scripts, publisher } = deps;
  const { nodeOf, slotOf, serverAt } = scripts;
  const announcements = new EventEmitter<Announcements>();
  const servers = new Map<string, ServerTracking>();
  const trackingAt = (node: string): ServerTracking | undefined => {
    const current = servers.get(node);
    const server = current ? undefined : serverAt(node);
    if (!server) return current;
    const isPublisher = () => publishing() === node;
    const tracking = trackServer({ ...deps, server, isPublisher, announcements });
    servers.set(node, tracking);
    server.once("end", () => {
      servers.delete(node);
      void tracking.close();
    });
    return tracking;
  };
  const isFollowing = (node: string): boolean => trackingAt(node)?.isOn() ?? false;
  let published = nodeOf(publisher);
  /** Announcements of a new publisher are missed until it is known as such. */
  const publishing = (): string => {
    const node = nodeOf(publisher);
    if (node !== published) announcements.emit("lost", true);
    published = node;
    return node;
  };
  const isUpToDate = (node: string): Promise<boolean> => trackingAt(node)?.upToDate() ?? Promise.resolve(false);
  const areUpToDate = async (nodes: ReadonlySet<string>): Promise<boolean> =>
    !(await Promise.all([...nodes].map(isUpToDate))).includes(false);
  return {
    announcements,
    /** Returns false while keys of these servers cannot be followed. */
    isOn: (nodes: readonly string[]): boolean => isFollowing(publishing()) && nodes.every(isFollowing),
    /** The first change that comes after a command sent later is announced. Resolves to false if keys are not followed. */
    follow: async (keys: readonly string[]): Promise<boolean> => {
      const asked = [...grouped(keys, nodeOf)].map(
        // A command in a cluster takes keys of one slot.
        async ([node, keysOfNode]) =>
          (await trackingAt(node)?.follow([...grouped(keysOfNode, (key) => String(slotOf(key))).values()])) ?? false,
      );
      return !(await Promise.all(asked)).includes(false);
    },
    /** Resolves once these servers have announced everything that happened before the call; to false if they may not have. */
    upToDate: (nodes: readonly string[]): Promise<boolean> => {
      const publisher = publishing();
      return nodes.every((node) => node === publisher)
        ? isUpToDate(publisher)
        : areUpToDate(new Set([publisher, ...nodes]));
    },
    close: async (): Promise<void> => {
      await allOf([...servers.values()].map((tracking) => tracking.close()));
    },
  };
}

type ServerTracking = ReturnType<typeof trackServer>;

interface ServerDeps {
  readonly server: Redis;
  /** Returns true while this server publishes the messages of the channel. */
  readonly isPublisher: () => boolean;
  readonly scripts: Pick<Scripts, "command">;
  readonly channel: string;
  readonly publisher: string;
  readonly announcements: EventEmitter<Announcements>;
  readonly log: Logger;
  readonly listen?: (server: Redis) => Redis;
}

/**
 * Follows keys read over the connection to one server (client-side caching by CLIENT TRACKING). The client takes no
 * invalidations, so that a connection of their own gets them, as messages of RESP2.
 *
 * A key is followed by a command of its own: before Redis 7.2 the keys that a script names are tracked, later those that
 * it reads. Changes and messages come over one connection in the order in which they happened, and so does the answer to
 * a ping: after it, all earlier ones are known. The server forgets what a connection that it has closed had followed; a
 * ping there shows that it has not.
 */
function trackServer({ server, scripts, announcements, log, ...deps }: ServerDeps) {
  const { channel, publisher, isPublisher, listen = listenerBeside } = deps;
  const listener = listen(server);
  let listening: Listening | undefined;
  /** Counts the connections of both that have closed. */
  let closed = 0;
  let on = false;

  const end = (): void => {
    closed++;
    if (on) announcements.emit("lost", isPublisher());
    on = false;
  };
  server.on("close", end);
  listener.on("close", () => {
    listening = undefined;
    end();
  });
  listener.on("messageBuffer", (from: string | Buffer, message: Buffer | readonly Buffer[] | null) => {
    // Every node of a cluster hands on what is published at any.
    if (String(from) === channel) {
      if (isPublisher()) announcements.emit("published", String(message));
    } else if (message === null) announcements.emit("lost", isPublisher());
    else for (const key of [message].flat()) announcements.emit("changed", String(key));
  });

  const begin = async (): Promise<void> => {
    // The client of a cluster connects to a node with the first command to it.
    if (server.status === "wait") await server.connect();
    if (on || server.status !== "ready" || listener.status !== "ready") return;
    const before = closed;
    try {
      listening ??= await begun(listener, channel);
      if ((await runIdOf(server)) !== listening.runId)
        throw new AppError("unavailable", "the connections lead to different servers");
      await server.call("CLIENT", "TRACKING", "ON", "REDIRECT", listening.id, "OPTIN");
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
    // A node that no longer holds the publisher's key refuses the question: another one publishes.
    const answer = (): Promise<unknown> => (isPublisher() ? server.exists(publisher) : server.ping());
    try {
      await Promise.all([listener.ping(), scripts.command("ping", answer)]);
    } catch {
      listener.disconnect(true);
      end();
    }
    return on && closed === before;
  };
  const settled = oncePerTurn(coalesce(ping));
  return {
    isOn: (): boolean => on,
    /** Each group of keys is of one slot. Resolves to false if one of them is not followed. */
    follow: async (groups: readonly (readonly string[])[]): Promise<boolean> => {
      const before = closed;
      const ask = () =>
        Promise.all(groups.flatMap((keys) => [server.call("CLIENT", "CACHING", "YES"), server.exists(...keys)]));
      return scripts.command("exists", ask).then(
        () => on && closed === before,
        () => false,
      );
    },
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

async function begun(listener: Redis, channel: string): Promise<Listening> {
  const [id, runId] = await Promise.all([listener.client("ID"), runIdOf(listener)]);
  await listener.subscribe(INVALIDATIONS, channel);
  return { id, runId };
}

const runIdOf = async (server: Redis): Promise<string | undefined> =>
  fieldsOf(await server.info("server")).get("run_id");
