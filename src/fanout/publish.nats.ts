import { type FanoutCompleted, type FanoutJob, jobMessageId, type Notification } from "../contracts/fanout.js";
import { COMPLETED_FANOUT, jobSubject, notifySubject } from "../contracts/subjects.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { encodeId } from "../kernel/ids.js";
import type { Publish } from "../platform/nats/publish.js";
import { observeFanout } from "./observe.js";
import type { ListenersAmong } from "./store.redis.js";

/** Notifies those of the users who have a stream, and whom `among` leaves of them; resolves after every PubAck. */
export type Notify = (
  users: readonly string[],
  notification: Notification,
  among?: (listening: readonly string[]) => Promise<readonly string[]>,
) => Promise<void>;

/** Resolves after every PubAck. */
export type QueueJobs = (jobs: readonly FanoutJob[]) => Promise<void>;

export type Complete = (completed: FanoutCompleted) => Promise<void>;

const bytes = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

export function createNotify(publish: Publish, listenersAmong: ListenersAmong): Notify {
  const notify: Notify = async (users, notification, among = async (all) => all) => {
    const listeners = await among(await listenersAmong(users));
    if (listeners.length === 0) return;
    const body = bytes(notification);
    const headers = traceHeaders();
    const id = `${notification.event}:${encodeId(notification.drop_id)}:`;
    await Promise.all(
      listeners.map((user) => publish({ subject: notifySubject(user), body, id: id + encodeId(user), headers })),
    );
    observeFanout.notified(listeners.length);
  };
  return notify;
}

export function createQueueJobs(publish: Publish): QueueJobs {
  return async (jobs) => {
    const headers = traceHeaders();
    await Promise.all(
      jobs.map((job) =>
        publish({ subject: jobSubject(job.action, job.admitted_at), body: bytes(job), id: jobMessageId(job), headers }),
      ),
    );
  };
}

export function createComplete(publish: Publish): Complete {
  return async (completed) => {
    const id = `${completed.event}:${encodeId(completed.drop_id)}`;
    await publish({ subject: COMPLETED_FANOUT, body: bytes(completed), id, headers: traceHeaders() });
    observeFanout.landed(completed);
  };
}
