import type { Redis } from "ioredis";
import type { Channel } from "../contracts/channels.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { type ClockReading, pause, readClocks, SECOND, wallTimeOf } from "../kernel/time.js";
import { redisError } from "../platform/redis/errors.js";
import { noteRefusal, Refusal } from "../platform/refusals.js";

const PING_MS = 5 * SECOND;

export type Channels = ReturnType<typeof createChannels>;

/** Reads Redis Pub/Sub channels, whose names are those of the events behind the prefix; a link that no longer answers is cut, and opened and subscribed again. */
export function createChannels(subscriber: Redis, log: Logger, prefix = "") {
  let paused = false;
  let subscribed = false;
  let pauses = 0;
  // Read before a ping was sent: its answer stands behind everything that was published until then. An event tells no such
  // time, since Redis may have kept it for long.
  let alive = readClocks();
  const stream = (): Partial<Redis>["stream"] => subscriber.stream;
  // A link that is not read on, or was not for a while since the ping, cannot answer in time.
  const checkAlive = async (): Promise<void> => {
    if (paused || subscriber.status !== "ready") return;
    const [sent, pausesBefore] = [readClocks(), pauses];
    const failure = await failureOfPing(subscriber);
    if (failure === undefined) alive = sent;
    else if (pauses === pausesBefore) {
      log.warn({ error: oneLine(failure) }, "the Pub/Sub link is dead; it is opened again");
      subscriber.disconnect(true);
    }
  };
  const ping = setInterval(() => void checkAlive(), PING_MS);
  return {
    /**
     * @param take also gets a time before the event was published, up to ten seconds before unless Redis kept the event
     * @param interrupted called after each interruption, with a time (ms since the epoch) before which nothing was missed
     */
    async subscribe(
      names: readonly Channel[],
      take: (channel: Channel, payload: Uint8Array, publishedAfter: ClockReading) => void,
      interrupted: (since: number) => void,
    ): Promise<void> {
      const known = new Map(names.map((name) => [prefix + name, name]));
      const channels = [...known.keys()];
      const receive = (channel: Buffer, payload: Buffer): void => {
        const name = known.get(channel.toString());
        if (name) take(name, payload, alive);
      };
      subscriber.on("messageBuffer", receive);
      alive = readClocks();
      await subscriber.subscribe(...channels).catch((error: unknown) => Promise.reject(redisError(error)));
      subscribed = true;
      let missedSince: number | undefined;
      // The connection is ready before the server knows the subscription again: until then events are missed.
      const subscribeAgain = async (): Promise<void> => {
        subscribed = await isSubscribed(subscriber, channels, log);
        if (!subscribed || missedSince === undefined) return;
        log.info({}, "subscribed again; what was published in between was not received");
        interrupted(missedSince);
        missedSince = undefined;
        alive = readClocks();
      };
      subscriber.on("close", () => {
        subscribed = false;
      });
      subscriber.on("ready", () => paused && stream()?.pause());
      subscriber.on("ready", () => {
        missedSince ??= wallTimeOf(alive);
        void subscribeAgain();
      });
    },
    /** Pauses or resumes reading; false if this source cannot be paused. */
    setPaused(pausing: boolean): boolean {
      const link = stream();
      paused = pausing && link !== undefined;
      if (paused) pauses++;
      if (pausing) link?.pause();
      else link?.resume();
      return link !== undefined;
    },
    healthy: (): boolean => subscribed,
    async unsubscribe(): Promise<void> {
      clearInterval(ping);
      // While Redis is unavailable the client would keep this until it is back.
      if (subscriber.status !== "ready") return;
      await Promise.race([subscriber.unsubscribe().catch(() => undefined), pause(SECOND)]);
    },
  };
}

/** Waits while the server does not permit it. Resolves to false if the connection is lost: the next one is asked. */
async function isSubscribed(subscriber: Redis, channels: readonly string[], log: Logger): Promise<boolean> {
  while (subscriber.status === "ready") {
    try {
      await subscriber.subscribe(...channels);
      noteRefusal(subscriber, undefined, log);
      return true;
    } catch (error) {
      const failure = redisError(error);
      if (!(failure instanceof Refusal)) return false;
      noteRefusal(subscriber, failure, log);
      await pause(SECOND);
    }
  }
  return false;
}

/** TCP notices a silent link after hours; a ping without an answer notices it within ten seconds. */
async function failureOfPing(subscriber: Redis): Promise<unknown> {
  const answered = subscriber.ping().then(
    () => undefined,
    (error: unknown) => error,
  );
  return Promise.race([answered, pause(PING_MS).then(() => new Error(`no answer within ${PING_MS} ms`))]);
}
