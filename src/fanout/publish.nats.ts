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
import type { Viewers } from "../state/hidden/relations.redis.js";
import type { ListenersAmong } from "../state/listeners/listening.redis.js";
import { traceHeaders } from "../telemetry/spans.js";
import { observeFanout } from "./observe.js";

/** Headers that continue a trace. Default: those of the active trace. */
export type Trace = Readonly<Record<string, string>> | undefined;

export interface AudienceNotification {
  readonly users: readonly string[];
  readonly notification: DropNotification;
  /** Selects the recipients from the listeners among `users`. Default: all. */
  readonly among?: ((listening: readonly string[]) => Promise<readonly string[]>) | undefined;
  /**
   * Returns which of these users may see the drop, and which are unknown. Users who stay unknown are told to read the
   * timeline again.
   */
  readonly viewersAmong?: ((listening: readonly string[]) => Promise<Viewers>) | undefined;
  /** Asks the users service whom these users hide, and waits for prompt answers. */
  readonly learn?: ((unknown: readonly string[]) => Promise<void>) | undefined;
  /**
   * Prefix that makes the id of the message a new one: NOTIFY stores an id once in two minutes, and may have stored
   * this one before a message that it has to follow.
   */
  readonly idPrefix?: string;
  readonly trace?: Trace;
}

/** Users of an audience who were notified. */
export type Told = Pick<AudienceNotification, "users" | "notification" | "trace">;

/**
 * Notifies those of the users who have a stream and are not erased. Resolves after every PubAck, with those who were
 * notified.
 */
export type Notify = (all: readonly AudienceNotification[]) => Promise<Told[]>;

/** Resolves after every PubAck. */
export type Queue<Job> = (jobs: readonly Job[]) => Promise<void>;

/** Resolves after every PubAck. */
export type Complete = (
  all: readonly { readonly completed: FanoutCompleted; readonly trace?: Trace }[],
) => Promise<void>;

type Addressed = Viewers & { readonly to: AudienceNotification };

/**
 * Notifies audiences. Users whose relations are known are notified before the users service is asked about the others,
 * so that nobody waits for them.
 */
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
    const [erased, ...viewers] = await Promise.all([
      among([...new Set(audiences.flat())]),
      ...all.map((notification, index) => addressed(notification, audiences[index] as readonly string[])),
    ]);
    const kept = (users: readonly string[]) => users.filter((user) => !erased.has(user));
    const first = viewers.map(({ to, seeing, unknown }) => ({ to, seeing: kept(seeing), unknown: kept(unknown) }));
    await publish(first.flatMap(({ to, seeing }) => messagesOf(to, seeing)));
    const second = await Promise.all(first.map(addressUnknown));
    await publish(second.flatMap(({ to, seeing, unknown }) => [...messagesOf(to, seeing), ...resetsOf(to, unknown)]));
    return all.flatMap(({ notification, trace }, index) => {
      const users = [...(first[index]?.seeing ?? []), ...(second[index]?.seeing ?? [])];
      return users.length === 0 ? [] : { users, notification, trace };
    });
  };
}

async function addressed(to: AudienceNotification, listening: readonly string[]): Promise<Addressed> {
  const { among, viewersAmong } = to;
  const users = listening.length === 0 || !among ? listening : await among(listening);
  return { to, ...(users.length === 0 || !viewersAmong ? { seeing: users, unknown: [] } : await viewersAmong(users)) };
}

async function addressUnknown({ to, unknown }: Addressed): Promise<Addressed> {
  if (unknown.length === 0) return { to, seeing: [], unknown };
  await to.learn?.(unknown);
  return { to, seeing: [], unknown, ...(await to.viewersAmong?.(unknown)) };
}

function resetsOf({ notification, trace }: AudienceNotification, users: readonly string[]): Message[] {
  if (users.length === 0) return [];
  const body = JSON.stringify({ event: "reset", reason: "relations_unknown" });
  const id = `reset:${encodeId(notification.drop_id)}:`;
  const headers = trace ?? traceHeaders();
  return users.map((user) => ({ subject: notifySubject(user), body, id: id + encodeId(user), headers }));
}

/** Tells gateways that drops of a user are hidden from a listener, or not any more. */
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

/** Chooses the completions that are to be checked later. */
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
