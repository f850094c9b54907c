import { eventOfSubject, parseEvent } from "../contracts/events.js";
import { parseJob } from "../contracts/jobs.js";
import { STREAM } from "../contracts/subjects.js";
import { AppError } from "../kernel/errors.js";
import type { RedrivenMessage } from "./destination.js";

/** Reads the present state of the upstreams. Errors are AppError. */
export interface Upstreams {
  /** A page of an author's drops, newest first, older than the pair (before, drop). */
  readonly drops: (
    author: string,
    below: { readonly before: number; readonly drop: string },
  ) => Promise<readonly { readonly drop_id: string; readonly created_at: number }[]>;
  /** A page of the users whom a user follows; an empty token ends the list. */
  readonly following: (
    user: string,
    token: string,
  ) => Promise<{ readonly ids: readonly string[]; readonly next: string }>;
}

/** The state of the upstreams under which a message may still be applied. */
type Claim =
  | { readonly kind: "none" }
  | {
      readonly kind: "drop";
      readonly author: string;
      readonly drop: string;
      readonly created_at: number;
      readonly before: number;
    }
  | { readonly kind: "edge"; readonly follower: string; readonly following: string; readonly follows: boolean };

const MAX_PAGES = 1_000;

const NOT_CONFIGURED =
  "it is older than the log, and so to be checked against the upstreams: " +
  "set TIMELINE_USER_SERVICE_ADDR and TIMELINE_POST_SERVICE_ADDR";

/**
 * Says why the upstreams no longer allow a message to be applied; undefined if they do. Only a message older than the
 * log needs the question: tombstones and edge versions, which live as long as the log, decide about younger ones.
 *
 * @throws AppError `invalid` if the upstreams cannot tell.
 */
export async function supersededBy(
  message: RedrivenMessage,
  upstreams: Upstreams | undefined,
  now: number,
): Promise<string | undefined> {
  const claim = claimOf(message, now);
  if (claim.kind === "none") return undefined;
  if (!upstreams) throw new AppError("invalid", NOT_CONFIGURED);
  if (claim.kind === "drop")
    return (await isListed(claim, upstreams)) ? undefined : "overtaken: its drop has been deleted";
  if ((await follows(claim, upstreams)) === claim.follows) return undefined;
  return `overtaken: the user has ${claim.follows ? "unfollowed" : "followed again"} since`;
}

function claimOf({ stream, subject, body }: RedrivenMessage, now: number): Claim {
  if (stream === STREAM.fanout) {
    if (parseJob(body).action === "remove") return { kind: "none" };
    throw new AppError(
      "invalid",
      "it names followers of that time, and the unfollows since are no longer stored: rebuild their timelines instead",
    );
  }
  if (stream !== STREAM.drops) return { kind: "none" };
  const { name, payload } = parseEvent(eventOfSubject(subject), body, now);
  // A deletion stays true: drop ids are not used again.
  if (name === "drop_deleted") return { kind: "none" };
  if (name === "user_followed" || name === "user_unfollowed") {
    const { follower_id: follower, following_id: following } = payload;
    return { kind: "edge", follower, following, follows: name === "user_followed" };
  }
  const { user_id: author, drop_id: drop, created_at } = payload;
  if (author === undefined)
    throw new AppError("invalid", "it is older than the log, and names no author whose drops could be read");
  // The time of a remote drop is capped when it is admitted.
  const before = name === "ap_drop_received" ? Number.MAX_SAFE_INTEGER : created_at + 1;
  return { kind: "drop", author, drop, created_at, before };
}

async function isListed(claim: Extract<Claim, { kind: "drop" }>, { drops }: Upstreams): Promise<boolean> {
  let below = { before: claim.before, drop: "" };
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const page = await drops(claim.author, below);
    if (page.some(({ drop_id }) => drop_id === claim.drop)) return true;
    const last = page.at(-1);
    if (!last || last.created_at < claim.created_at) return false;
    below = { before: last.created_at, drop: last.drop_id };
  }
  throw new AppError("invalid", "its author has more drops of that time than can be looked through");
}

async function follows(claim: Extract<Claim, { kind: "edge" }>, { following }: Upstreams): Promise<boolean> {
  let token = "";
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const page = await following(claim.follower, token);
    if (page.ids.includes(claim.following)) return true;
    if (page.next === "") return false;
    token = page.next;
  }
  throw new AppError("invalid", "its follower follows more than can be looked through");
}
