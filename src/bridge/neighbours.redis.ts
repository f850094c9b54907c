import type { Redis } from "ioredis";
import { z } from "zod";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { startLoop, warnOnce } from "../kernel/loop.js";
import { SECOND } from "../kernel/time.js";

/** Bridges announce their installation here, beside the events. Every database of a server shares its channels. */
const ANNOUNCEMENTS = "timeline_bridges";

const EVERY_MS = 5 * SECOND;
/** A bridge that has ended is forgotten after this many announcements that did not come. */
const MISSED = 4;

/** The log is the name that it shares with its Redis. Anybody may publish on a channel: nothing else is repeated. */
const announcement = z.object({ log: z.guid(), process: z.string().max(253) });
type Announcement = z.output<typeof announcement>;

interface NeighboursDeps {
  readonly subscriber: Pick<Redis, "on" | "subscribe">;
  /** A subscribed connection takes no other commands. */
  readonly publisher: Pick<Redis, "publish">;
  readonly channelPrefix: string;
  readonly process: string;
  /** Resolves to undefined while the log has no name. */
  readonly readLog: () => Promise<string | undefined>;
  readonly log: Logger;
  readonly everyMs?: number;
}

export type Neighbours = ReturnType<typeof watchNeighbours>;

/** Notices another installation that hears the same channels: each would admit the events of the other. */
export function watchNeighbours(deps: NeighboursDeps) {
  const { subscriber, publisher, channelPrefix, process, readLog, log, everyMs = EVERY_MS } = deps;
  const channel = channelPrefix + ANNOUNCEMENTS;
  let ourLog: string | undefined;
  /** Former name of the log: a bridge of this installation may not have read the new one yet. */
  let former: string | undefined;
  let asking = false;
  let other: { readonly name: string; readonly until: number } | undefined;
  const fault = (): string | undefined => {
    if (other === undefined || other.name === ourLog || performance.now() > other.until) return undefined;
    return (
      `the installation of the log ${other.name} hears the same channels as this one, of the log ${ourLog}: ` +
      "each needs a TIMELINE_CHANNEL_PREFIX of its own"
    );
  };
  const announce = async (): Promise<void> => {
    const name = await readLog();
    if (ourLog !== undefined && name !== ourLog) former = ourLog;
    ourLog = name;
    if (ourLog !== undefined) await publisher.publish(channel, JSON.stringify({ log: ourLog, process }));
  };
  const failed = warnOnce(log, "this bridge could not announce its installation");
  const loop = startLoop({ work: announce, everyMs, failed });
  const hear = async ({ log: name, process: theirProcess }: Announcement): Promise<void> => {
    const isOther = (): boolean => ourLog !== undefined && name !== ourLog && name !== former;
    if (!isOther()) return;
    const isNews = fault() === undefined;
    if (isNews) {
      if (asking) return;
      asking = true;
      // The log may have got this name just now, and the other one may have started before this one listened.
      await announce().finally(() => {
        asking = false;
      });
      if (!isOther()) return;
    }
    other = { name, until: performance.now() + MISSED * everyMs };
    if (isNews) log.error({ process: theirProcess }, fault() as string);
  };
  subscriber.on("message", (from: string, text: string) => {
    const heard = from === channel ? parsed(text) : undefined;
    if (heard) hear(heard).catch((error) => failed(error, 1));
  });
  const subscribe = (): void => {
    // Permissions of an earlier version do not have this channel.
    subscriber.subscribe(channel).catch((error) => {
      log.warn({ channel, error: oneLine(error) }, "installations that hear the same channels cannot be noticed");
    });
  };
  subscribe();
  // The client does not subscribe again by itself.
  subscriber.on("ready", subscribe);
  return { fault, close: loop.close };
}

function parsed(text: string): Announcement | undefined {
  try {
    return announcement.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
