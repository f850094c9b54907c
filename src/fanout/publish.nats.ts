import { jobMessageId } from "../contracts/jobs.js";
import { COMPLETED_FANOUT, jobSubject, notifySubject } from "../contracts/subjects.js";
import { traceHeaders } from "../delivery/traced.js";
import { encodeId } from "../kernel/ids.js";
import type { Publish } from "../platform/nats/publish.js";
import type { Listening } from "./listeners.redis.js";
import { observeFanout } from "./observe.js";
import type { Complete, Notify, QueueJobs } from "./ports.js";

const bytes = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

/** Publishes to NOTIFY for those who listen. */
export function createNotify(publish: Publish, listening: Listening): Notify {
  return async (users, notification, among = async (all) => all) => {
    const listeners = await among(await listening(users));
    if (listeners.length === 0) return;
    const body = bytes(notification);
    const headers = traceHeaders();
    const id = `${notification.event}:${encodeId(notification.drop_id)}:`;
    await Promise.all(
      listeners.map((user) => publish({ subject: notifySubject(user), body, id: id + encodeId(user), headers })),
    );
    observeFanout.notified(listeners.length);
  };
}

/** Publishes chunk jobs to FANOUT. */
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

/** Publishes to COMPLETIONS, and measures what is said there. */
export function createComplete(publish: Publish): Complete {
  return async (completed) => {
    const id = `${completed.event}:${encodeId(completed.drop_id)}`;
    await publish({ subject: COMPLETED_FANOUT, body: bytes(completed), id, headers: traceHeaders() });
    observeFanout.landed(completed);
  };
}
