import { RECENT_KEY } from "../contracts/keys.js";
import { notifySubject } from "../contracts/subjects.js";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { encodeId } from "../kernel/ids.js";
import type { Publish } from "../platform/nats/publish.js";
import type { RedisClock } from "../platform/redis/clock.js";
import type { Scripts } from "../platform/redis/scripts.js";

/**
 * A user who was seen after this time is listed; ms since the epoch. By the clock of Redis, as the gateway writes it:
 * with two clocks, notifications would not be stored for a user whom the gateway takes for listed.
 */
export const listedSince = async (clock: { now(key: string): Promise<number> }): Promise<number> =>
  (await clock.now(RECENT_KEY)) - NOTIFY_WINDOW_MS;

interface NotifyUserDeps {
  readonly publish: Publish;
  readonly scripts: Scripts;
  readonly clock: Pick<RedisClock, "now">;
}

/** Notifies a user who has a stream open, or closed one within the window; resolves after the PubAck. */
export const createNotifyUser =
  ({ publish, scripts, clock }: NotifyUserDeps) =>
  async (user: string, notification: { readonly event: string }, id: string): Promise<void> => {
    const since = await listedSince(clock);
    const seen = await scripts.command("zscore", (client) => client.zscore(RECENT_KEY, encodeId(user)));
    if (seen === null || Number(seen) <= since) return;
    const body = Buffer.from(JSON.stringify(notification));
    await publish({ subject: notifySubject(user), body, id, headers: traceHeaders() });
  };
