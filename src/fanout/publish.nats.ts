import { type FanoutCompleted, type FanoutJob, jobMessageId, type Notification } from "../contracts/fanout.js";
import { COMPLETED_FANOUT, jobSubject, notifySubject } from "../contracts/subjects.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { AppError } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Message, PublishAll } from "../platform/nats/publish.js";
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

export function createNotify(publishAll: PublishAll, listenersAmong: ListenersAmong): Notify {
  const notify: Notify = async (users, notification, among = async (all) => all) => {
    const listeners = await among(await listenersAmong(users));
    if (listeners.length === 0) return;
    const body = bytes(notification);
    const headers = traceHeaders();
    const id = `${notification.event}:${encodeId(notification.drop_id)}:`;
    await stored(
      publishAll,
      listeners.map((user) => ({ subject: notifySubject(user), body, id: id + encodeId(user), headers })),
    );
    observeFanout.notified(listeners.length);
  };
  return notify;
}

export function createQueueJobs(publishAll: PublishAll): QueueJobs {
  return async (jobs) => {
    const headers = traceHeaders();
    await stored(
      publishAll,
      jobs.map((job) => {
        return { subject: jobSubject(job.action, job.admitted_at), body: bytes(job), id: jobMessageId(job), headers };
      }),
    );
  };
}

export function createComplete(publishAll: PublishAll): Complete {
  return async (completed) => {
    const id = `${completed.event}:${encodeId(completed.drop_id)}`;
    await stored(publishAll, [{ subject: COMPLETED_FANOUT, body: bytes(completed), id, headers: traceHeaders() }]);
    observeFanout.landed(completed);
  };
}

async function stored(publishAll: PublishAll, messages: readonly Message[]): Promise<void> {
  const failed = (await publishAll(messages)).find((result) => result instanceof AppError);
  if (failed) throw failed;
}
