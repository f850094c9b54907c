import { randomUUID } from "node:crypto";
import {
  type EdgeJob,
  edgeJobMessageId,
  type FanoutCompleted,
  type FanoutJob,
  jobMessageId,
} from "../contracts/fanout.js";
import { type DropNotification, HIDING_EVENT, type HidingNotification } from "../contracts/stream-events.js";
import {
  COMPLETED_FANOUT,
  edgeJobSubject,
  jobSubject,
  notifySubject,
  PUBLICATION_CHECK,
} from "../contracts/subjects.js";
import { AppError } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Message, PublishAll } from "../platform/nats/publish.js";
import type { Erased } from "../state/erased/erasures.js";
import type { HidingChange } from "../state/hidden/changes.redis.js";
import type { Judged } from "../state/hidden/relations.redis.js";
import type { ListenersAmong } from "../state/listeners/listening.redis.js";
import { traceHeaders } from "../telemetry/spans.js";
import { observeFanout } from "./observe.js";

/** These headers continue a trace. Where they are unset, the active trace counts. */
export type Trace = Readonly<Record<string, string>> | undefined;

export interface AudienceNotification {
  readonly users: readonly string[];
  readonly notification: DropNotification;
  /** Selects some of those who have a stream. */
  readonly among?: ((listening: readonly string[]) => Promise<readonly string[]>) | undefined;
  /** Tells who of them may see the drop. Whoever cannot be judged soon is told to read the timeline again. */
  readonly judge?: ((listening: readonly string[]) => Promise<Judged>) | undefined;
  /** Asks whom these users hide, and waits for the answers that come soon. */
  readonly learn?: ((unknown: readonly string[]) => Promise<void>) | undefined;
  /** NOTIFY may have it already, before what it must follow, and stores an id once in two minutes: begins another one. */
  readonly idPrefix?: string;
  readonly trace?: Trace;
}

/** These users of an audience were notified. */
export type Told = Pick<AudienceNotification, "users" | "notification" | "trace">;

/** Notifies those of the users who have a stream and are not erased; resolves after every PubAck, with those who were notified. */
export type Notify = (all: readonly AudienceNotification[]) => Promise<Told[]>;

/** Resolves after every PubAck. */
export type Queue<Job> = (jobs: readonly Job[]) => Promise<void>;

/** Resolves after every PubAck. */
export type Complete = (
  all: readonly { readonly completed: FanoutCompleted; readonly trace?: Trace }[],
) => Promise<void>;

type Judging = Judged & { readonly of: AudienceNotification };

/** A listener who cannot be judged yet holds up no other: what is known is published before the users service is asked. */
export function createNotify(
  publishAll: PublishAll,
  listenersAmong: ListenersAmong,
  { among }: Pick<Erased, "among">,
): Notify {
  const publish = async (messages: readonly Message[]): Promise<void> => {
    if (messages.length === 0) return;
    await stored(publishAll, messages);
    observeFanout.notified(messages.length);
  };
  return async (all) => {
    if (all.length === 0) return [];
    const isListening = await listenersAmong(all.map(({ users }) => users));
    if (!isListening) return [];
    const audiences = all.map(({ users }) => users.filter(isListening));
    const [erased, ...judged] = await Promise.all([
      among([...new Set(audiences.flat())]),
      ...all.map((one, at) => toldOf(one, audiences[at] as readonly string[])),
    ]);
    const standing = (users: readonly string[]) => users.filter((user) => !erased.has(user));
    const first = judged.map(({ of, seeing, unknown }) => ({
      of,
      seeing: standing(seeing),
      unknown: standing(unknown),
    }));
    await publish(first.flatMap(({ of, seeing }) => messagesOf(of, seeing)));
    const second = await Promise.all(first.map(judgeAgain));
    await publish(second.flatMap((one) => [...messagesOf(one.of, one.seeing), ...resetsOf(one.of, one.unknown)]));
    return all.flatMap(({ notification, trace }, at) => {
      const users = [...(first[at]?.seeing ?? []), ...(second[at]?.seeing ?? [])];
      return users.length === 0 ? [] : { users, notification, trace };
    });
  };
}

async function toldOf(of: AudienceNotification, listening: readonly string[]): Promise<Judging> {
  const { among, judge } = of;
  const some = listening.length === 0 || !among ? listening : await among(listening);
  return { of, ...(some.length === 0 || !judge ? { seeing: some, unknown: [] } : await judge(some)) };
}

async function judgeAgain({ of, unknown }: Judging): Promise<Judging> {
  if (unknown.length === 0) return { of, seeing: [], unknown };
  await of.learn?.(unknown);
  return { of, seeing: [], unknown, ...(await of.judge?.(unknown)) };
}

function resetsOf({ notification, trace }: AudienceNotification, users: readonly string[]): Message[] {
  if (users.length === 0) return [];
  const body = JSON.stringify({ event: "reset", reason: "relations_unknown" });
  const id = `reset:${encodeId(notification.drop_id)}:`;
  const headers = trace ?? traceHeaders();
  return users.map((user) => ({ subject: notifySubject(user), body, id: id + encodeId(user), headers }));
}

/** Tells gateways whose drops a user with a stream does not see any more, or sees again. */
export type NotifyHiding = (changes: readonly HidingChange[]) => Promise<void>;

export const createNotifyHiding =
  (publishAll: PublishAll): NotifyHiding =>
  (changes) => {
    const headers = traceHeaders();
    const messages = changes.map(({ user, target, hiding }): Message => {
      const body: HidingNotification = { event: HIDING_EVENT, user_id: target, hiding: hiding ?? "none" };
      return { subject: notifySubject(user), body: JSON.stringify(body), id: `hiding:${randomUUID()}`, headers };
    });
    return stored(publishAll, messages);
  };

function messagesOf({ notification, idPrefix = "", trace }: AudienceNotification, users: readonly string[]): Message[] {
  if (users.length === 0) return [];
  const body = JSON.stringify(notification);
  const headers = trace ?? traceHeaders();
  const id = `${idPrefix}${notification.event}:${encodeId(notification.drop_id)}:`;
  return users.map((user) => ({ subject: notifySubject(user), body, id: id + encodeId(user), headers }));
}

export const createQueueJobs = (publishAll: PublishAll): Queue<FanoutJob> =>
  createQueue(publishAll, jobSubject, jobMessageId);

export const createQueueEdges = (publishAll: PublishAll): Queue<EdgeJob> =>
  createQueue(publishAll, ({ admitted_at }) => edgeJobSubject(admitted_at), edgeJobMessageId);

function createQueue<Job>(
  publishAll: PublishAll,
  subjectOf: (job: Job) => string,
  idOf: (job: Job) => string,
): Queue<Job> {
  return async (jobs) => {
    const headers = traceHeaders();
    const messageOf = (job: Job) => ({ subject: subjectOf(job), body: JSON.stringify(job), id: idOf(job), headers });
    await stored(publishAll, jobs.map(messageOf));
  };
}

/** Chooses those that are to be checked later. */
export type Sample = (all: readonly FanoutCompleted[]) => ReadonlySet<FanoutCompleted>;

export function createComplete(publishAll: PublishAll, sample: Sample): Complete {
  return async (all) => {
    const toCheck = sample(all.map(({ completed }) => completed));
    const active = traceHeaders();
    const messages: Message[] = [];
    for (const { completed, trace: headers = active } of all) {
      const id = `${completed.event}:${encodeId(completed.drop_id)}`;
      const message = { subject: COMPLETED_FANOUT, body: JSON.stringify(completed), id, headers };
      messages.push(message);
      if (toCheck.has(completed)) messages.push({ ...message, subject: PUBLICATION_CHECK });
    }
    await stored(publishAll, messages);
    observeFanout.completed(all.map(({ completed }) => completed));
  };
}

async function stored(publishAll: PublishAll, messages: readonly Message[]): Promise<void> {
  const failed = (await publishAll(messages)).find((result) => result instanceof AppError);
  if (failed) throw failed;
}
