import { z } from "zod";
import { encodeId, fingerprint } from "../kernel/ids.js";
import { parseJson } from "./events.js";
import { dropId, understood, userId } from "./untrusted.js";
import { version } from "./versions.js";

const ms = z.number().int().nonnegative();
const kind = z.number().int().positive();

const change = z.object({
  user: userId,
  /** A number of the enum NotificationKind. */
  kind,
  actor: userId,
  /** "" for follows. */
  drop: dropId.or(z.literal("")),
  /** Of a repost: the repost; else the drop. */
  byDrop: dropId.or(z.literal("")),
  /** Of a mention in a reply. Erasures find people by the names of fields. */
  parent_author: userId.optional(),
  /** True: the user is told only if they follow the actor. */
  isForFollowers: z.boolean().optional(),
  version,
  /** Decides between equal versions: an acceptance may have the version of the end of its request. */
  rank: z.union([z.literal(0), z.literal(1)]),
  /** False: the notification is taken back. */
  active: z.boolean(),
  /** Admission, ms since the epoch. */
  at: ms,
  /** Sequence of the message in its stream. */
  seq: ms,
  /** True: event streams do not tell of it. */
  isSilent: z.boolean(),
});

/** A change of the notification of one key: user, slot, actor and drop. */
export type NotificationChange = Readonly<z.output<typeof change>>;

export const MAX_JOB_CHANGES = 250;

const job = z.object({ changes: z.array(change).min(1).max(MAX_JOB_CHANGES) });

/** A job has changes of the notifications of one user. */
export interface NotificationJob {
  readonly changes: readonly NotificationChange[];
}

/** @throws AppError `invalid`, naming the field */
export const parseNotificationJob = (bytes: Uint8Array): NotificationJob => understood(job, parseJson(bytes));

export const notificationJobId = ({ changes }: NotificationJob): string =>
  `notifications:${encodeId(changes[0]?.user ?? "")}:${fingerprint(JSON.stringify(changes))}`;

/** Returns the admission of the oldest change, ms since the epoch. */
export const admittedAt = ({ changes }: NotificationJob): number => Math.min(...changes.map((change) => change.at));
