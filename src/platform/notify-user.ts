import { RECENT_KEY } from "../contracts/keys.js";
import { notifySubject } from "../contracts/subjects.js";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { encodeId } from "../kernel/ids.js";
import type { Publish } from "./nats/publish.js";
import type { Scripts } from "./redis/scripts.js";

/** Notifies a user who has a stream open, or closed one within the window; resolves after the PubAck. */
type NotifyUser = (user: string, notification: { readonly event: string }, messageId: string) => Promise<void>;

export function createNotifyUser({ publish, scripts }: { publish: Publish; scripts: Scripts }): NotifyUser {
  return async (user, notification, id) => {
    const seen = await scripts.command("zscore", (client) => client.zscore(RECENT_KEY, encodeId(user)));
    if (seen === null || Number(seen) <= Date.now() - NOTIFY_WINDOW_MS) return;
    const body = Buffer.from(JSON.stringify(notification));
    await publish({ subject: notifySubject(user), body, id, headers: traceHeaders() });
  };
}
