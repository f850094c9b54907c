import { parseStoredActivity } from "../../contracts/activity.js";
import { parseCompleted, parseRequest } from "../../contracts/analysis.js";
import {
  CHANNELS,
  type PublishedEvent,
  parsePublished,
  publishedId,
  streamOf,
  subjectOf,
} from "../../contracts/channels.js";
import { eventOfSubject, isEdge, isErasure, isRelation, isStanding, parseEvent } from "../../contracts/events.js";
import { parseEdgeJob, parseJob } from "../../contracts/fanout.js";
import { isListReader } from "../../contracts/lists.js";
import { parseNotificationJob } from "../../contracts/notification-jobs.js";
import {
  DLQ_HEADER,
  isEdgeJob,
  isNotificationJob,
  isPlainSubject,
  SILENT_HEADER,
  STREAM,
} from "../../contracts/subjects.js";
import type { DropPage, TimelineEntry } from "../../contracts/timelines.js";
import { NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { carried, type DeadLetter } from "../../delivery/dead-letter.js";
import { AppError } from "../../kernel/errors.js";
import { type IdPage, readPages } from "../../kernel/paging.js";
import type { StoredDeadLetter } from "./stored-dead-letter.js";

export interface RedrivenMessage extends DeadLetter {
  /** Only this stream may store it. */
  readonly stream: string;
}

/** An `invalid` payload is validated as if it arrived `now`. @throws AppError `invalid` if it cannot be redriven */
export function destinationOf(deadLetter: StoredDeadLetter, now: number): RedrivenMessage {
  const { reason, stream } = deadLetter.summary;
  if (reason === "toolarge")
    throw new AppError("invalid", "only its beginning was kept: publish the event again, in a message that fits");
  if (stream === null) return admission(deadLetter, now);
  if (!isPlainSubject(deadLetter.origin))
    throw new AppError("invalid", `"${deadLetter.origin}" is no subject to publish it to again`);
  if (reason === "invalid") validateAgain(deadLetter, now);
  const { seq, redrive_count, first_seen } = deadLetter.summary;
  return {
    subject: deadLetter.origin,
    stream,
    // The id differs from the original's, which the stream would take for a duplicate. It is the same for a
    // redrive that is repeated after an interruption, so that the message is stored once.
    id: `redrive:${seq}:${first_seen}:${redrive_count + 1}`,
    headers: headersOf(deadLetter, now),
    body: deadLetter.body,
  };
}

/** A payload that a bridge refused was in no stream: it is admitted as if it arrived now. */
function admission(deadLetter: StoredDeadLetter, now: number): RedrivenMessage {
  const channel = CHANNELS.find((name) => name === deadLetter.origin);
  if (deadLetter.summary.reason !== "invalid" || channel === undefined)
    throw new AppError("invalid", "it names no stream to go back to");
  const event = parsePublished(channel, deadLetter.body, now);
  return {
    subject: subjectOf(channel),
    stream: streamOf(channel),
    id: publishedId(event),
    headers: { ...traceOf(event), ...headersOf(deadLetter, now) },
    body: Buffer.from(JSON.stringify(event.payload)),
  };
}

function traceOf({ payload }: PublishedEvent): Record<string, string> {
  return payload.traceparent !== undefined && /^[\da-f-]+$/.test(payload.traceparent)
    ? { traceparent: payload.traceparent }
    : {};
}

function validateAgain({ summary, origin, body }: StoredDeadLetter, now: number): void {
  if (summary.stream === STREAM.drops) parseEvent(eventOfSubject(origin), body, now);
  if (summary.stream === STREAM.activity) parseStoredActivity(origin, body);
  if (summary.stream === STREAM.fanout) parserOfJob(origin)(body);
  if (summary.stream === STREAM.timeline) parseRequest(body);
  if (summary.stream === STREAM.timelineEvents) parseCompleted(body);
}

function parserOfJob(subject: string): (body: Uint8Array) => unknown {
  if (isNotificationJob(subject)) return parseNotificationJob;
  return isEdgeJob(subject) ? parseEdgeJob : parseJob;
}

function headersOf({ headers, summary, firstSeenAt }: StoredDeadLetter, now: number): Record<string, string> {
  return {
    ...carried(headers),
    [DLQ_HEADER.firstSeen]: summary.first_seen,
    [DLQ_HEADER.redriveCount]: String(summary.redrive_count + 1),
    ...(now - firstSeenAt > NOTIFY_WINDOW_MS ? { [SILENT_HEADER]: "1" } : {}),
  };
}

/** Reads the present state of the upstreams. Errors are AppError. */
export interface Upstreams {
  /** Reads a page of an author's drops, newest first, below a position. */
  readonly drops: (author: string, below: TimelineEntry) => Promise<DropPage>;
  readonly following: (user: string, token: string) => Promise<IdPage>;
}

const MAX_PAGES = 1_000;

const NOT_CONFIGURED =
  "it is older than the log, and so to be checked against the upstreams: " +
  "set TIMELINE_USER_SERVICE_ADDR and TIMELINE_POST_SERVICE_ADDR";

/**
 * Returns the reason why a message must not be applied any more by the upstreams; undefined if there is none. Only a
 * message older than the log is checked: tombstones and edge versions, which live as long as the log, decide about younger ones.
 * @throws AppError `invalid` if the upstreams cannot tell.
 */
export async function overtakenBy(
  message: RedrivenMessage,
  upstreams: Upstreams | undefined,
  now: number,
): Promise<string | undefined> {
  const check = checkOf(message, now);
  if (!check) return undefined;
  if (!upstreams) throw new AppError("invalid", NOT_CONFIGURED);
  return check(upstreams);
}

type Check = (upstreams: Upstreams) => Promise<string | undefined>;

function checkOf({ stream, subject, body }: RedrivenMessage, now: number): Check | undefined {
  if (isNotificationJob(subject)) return undefined;
  if (stream === STREAM.fanout) {
    if (!isEdgeJob(subject) && parseJob(body).action === "remove") return undefined;
    throw new AppError(
      "invalid",
      "it names followers of that time, and the unfollows since are no longer stored: rebuild their timelines instead",
    );
  }
  if (stream !== STREAM.drops) return undefined;
  const event = parseEvent(eventOfSubject(subject), body, now);
  // A relation is read from the users service when it is applied, an erasure is for ever, and versions of standings stay.
  if (isRelation(event) || isErasure(event) || isStanding(event)) return undefined;
  // A list that is renewed once more is as before.
  if (isEdge(event) && isListReader(event.payload.follower_id)) return undefined;
  if (isEdge(event)) {
    const expected = event.name === "user_followed";
    return async (upstreams) => {
      if ((await follows(event.payload, upstreams)) === expected) return undefined;
      return `overtaken: the user has ${expected ? "unfollowed" : "followed again"} since`;
    };
  }
  const { name, payload } = event;
  // A deletion stays true: drop ids are not used again. An old edit notifies nobody.
  if (name === "drop_deleted" || name === "drop_edited") return undefined;
  const { user_id: author, drop_id: drop, created_at } = payload;
  if (author === undefined)
    throw new AppError("invalid", "it is older than the log, and names no author whose drops could be read");
  // The time of a remote drop is capped when it is admitted.
  const before = name === "ap_drop_received" ? Number.MAX_SAFE_INTEGER : created_at + 1;
  return async (upstreams) =>
    (await isListed({ author, drop, created_at, before }, upstreams))
      ? undefined
      : "overtaken: its drop has been deleted";
}

interface Drop {
  readonly author: string;
  readonly drop: string;
  readonly created_at: number;
  readonly before: number;
}

async function isListed({ author, drop, created_at, before }: Drop, { drops }: Upstreams): Promise<boolean> {
  let below: TimelineEntry = { score: before, drop: "" };
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const page = await drops(author, below);
    if (page.drops.some(({ drop_id }) => drop_id === drop)) return true;
    if (!page.next || page.next.score < created_at) return false;
    below = page.next;
  }
  throw new AppError(
    "invalid",
    "cannot check whether the drop still exists: its author has too many drops of this creation time",
  );
}

async function follows(
  { follower_id, following_id }: { readonly follower_id: string; readonly following_id: string },
  { following }: Upstreams,
): Promise<boolean> {
  for await (const { ids } of readPages((token) => following(follower_id, token), MAX_PAGES))
    if (ids.includes(following_id)) return true;
  return false;
}
