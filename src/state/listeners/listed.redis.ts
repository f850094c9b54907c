import type { UserNotification } from "../../contracts/stream-events.js";
import { notifySubject } from "../../contracts/subjects.js";
import { NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { encodeId } from "../../kernel/ids.js";
import type { Publish } from "../../platform/nats/publish.js";
import type { RedisClock } from "../../platform/redis/clock.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { traceHeaders } from "../../telemetry/spans.js";
import { listenerPart, listenerParts, RECENT_KEY, recentKey } from "../keys.js";

/**
 * Returns the time since when a user must have been seen to be listed, in ms since the epoch by the clock of Redis, as
 * the gateway writes it: with two clocks, notifications would not be stored for a user whom the gateway takes for
 * listed.
 */
export const listedSince = async (clock: { now(key: string): Promise<number> }): Promise<number> =>
  (await clock.now(RECENT_KEY)) - NOTIFY_WINDOW_MS;

/**
 * Key in which gateways of 0.1.0 list their users in a cluster. It expires 11 minutes after the last of them has ended.
 */
const older = (isCluster: boolean): readonly string[] => (isCluster ? [RECENT_KEY] : []);

/** Returns the keys that a listener may be in. */
const recentKeysOf = (user: string, isCluster: boolean): readonly string[] => [
  recentKey(listenerPart(user, isCluster)),
  ...older(isCluster),
];

/** Returns the keys of the whole index of listeners. */
export const allRecentKeys = (isCluster: boolean): readonly string[] => [
  ...listenerParts(isCluster).map(recentKey),
  ...older(isCluster),
];

interface NotifyUserDeps {
  readonly publish: Publish;
  readonly scripts: Scripts;
  readonly clock: Pick<RedisClock, "now">;
}

/** Notifies a user who has a stream open, or closed one within the window. Resolves after the PubAck. */
export const createNotifyUser =
  ({ publish, scripts, clock }: NotifyUserDeps) =>
  async (user: string, notification: UserNotification, id: string): Promise<void> => {
    const since = await listedSince(clock);
    const look = (key: string) => scripts.command("zscore", (client) => client.zscore(key, encodeId(user)));
    const seen = await Promise.all(recentKeysOf(user, scripts.isCluster).map(look));
    if (Math.max(...seen.map(Number)) <= since) return;
    const body = Buffer.from(JSON.stringify(notification));
    await publish({ subject: notifySubject(user), body, id, headers: traceHeaders() });
  };
