import type { Redis } from "ioredis";
import type { EventName } from "../contracts/events.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause, readClocks, SECOND, wallTimeOf } from "../kernel/time.js";

const PING_MS = 5 * SECOND;

export type Channels = ReturnType<typeof createChannels>;

/** Reads Redis Pub/Sub channels; a link that no longer answers is cut, and opened and subscribed again. */
export function createChannels(subscriber: Redis, log: Logger) {
  let paused = false;
  let alive = readClocks();
  const stream = (): Partial<Redis>["stream"] => subscriber.stream;
  // A link that is not read on cannot answer.
  const checkAlive = async (): Promise<void> => {
    if (!paused && (await checkLink(subscriber, log))) alive = readClocks();
  };
  const ping = setInterval(() => void checkAlive(), PING_MS);
  return {
    /** @param interrupted called after each interruption, with when the link last worked (ms since the epoch) */
    async subscribe(
      names: readonly EventName[],
      take: (channel: EventName, payload: Uint8Array) => void,
      interrupted: (since: number) => void,
    ): Promise<void> {
      const known = new Set<string>(names);
      const receive = (channel: Buffer, payload: Buffer): void => {
        alive = readClocks();
        const name = channel.toString();
        if (known.has(name)) take(name as EventName, payload);
      };
      subscriber.on("messageBuffer", receive);
      await subscriber.subscribe(...names);
      alive = readClocks();
      subscriber.on("ready", () => paused && stream()?.pause());
      subscriber.on("ready", () => {
        log.info({}, "subscribed again; what was published in between was not received");
        interrupted(wallTimeOf(alive));
        alive = readClocks();
      });
    },
    /** Pauses or resumes reading; false where this source cannot be paused. */
    setPaused(pausing: boolean): boolean {
      const link = stream();
      paused = pausing && link !== undefined;
      if (pausing) link?.pause();
      else link?.resume();
      return link !== undefined;
    },
    healthy: (): boolean => subscriber.status === "ready",
    async unsubscribe(): Promise<void> {
      clearInterval(ping);
      // While Redis is unavailable the client would keep this until it is back.
      if (subscriber.status !== "ready") return;
      await Promise.race([subscriber.unsubscribe().catch(() => undefined), pause(SECOND)]);
    },
  };
}

/** TCP notices a silent link after hours; a ping without an answer notices it within ten seconds. */
async function checkLink(subscriber: Redis, log: Logger): Promise<boolean> {
  if (subscriber.status !== "ready") return false;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${PING_MS} ms`)), PING_MS);
  });
  try {
    await Promise.race([subscriber.ping(), late]);
    return true;
  } catch (error) {
    log.warn({ error: oneLine(error) }, "the Pub/Sub link is dead; it is opened again");
    subscriber.disconnect(true);
    return false;
  } finally {
    clearTimeout(timer);
  }
}
