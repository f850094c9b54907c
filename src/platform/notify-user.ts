import { RECENT_KEY } from "../contracts/keys.js";
import { listedSince } from "../contracts/listed.js";
import { notifySubject } from "../contracts/subjects.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { encodeId } from "../kernel/ids.js";
import type { Publish } from "./nats/publish.js";
import type { RedisClock } from "./redis/clock.js";
import type { Scripts } from "./redis/scripts.js";

/** Notifies a user who has a stream open, or closed one within the window; resolves after the PubAck. */
type NotifyUser = (user: string, notification: { readonly event: string }, messageId: string) => Promise<void>;

interface NotifyUserDeps {
  readonly publish: Publish;
  readonly scripts: Scripts;
  readonly clock: Pick<RedisClock, "now">;
}

export function createNotifyUser({ publish, scripts, clock }: NotifyUserDeps): NotifyUser {
  return async (user, notification, id) => {
    const since = await listedSince(clock);
    const seen = await scripts.command("zscore", (client) => client.zscore(RECENT_KEY, encodeId(user)));
    if (seen === null || Number(seen) <= since) return;
    const body = Buffer.from(JSON.stringify(notification));
    await publish({ subject: notifySubject(user), body, id, headers: traceHeaders() });
  };
}
