import { eventOfSubject, parseEvent } from "../contracts/events.js";
import { parseJob } from "../contracts/jobs.js";
import { STREAM } from "../contracts/subjects.js";
import { AppError } from "../kernel/errors.js";
import type { Redriven } from "./destination.js";

/** What an old letter is checked against. Rejects with AppError where the services do not answer. */
export interface Upstreams {
  /** A page of an author's drops, newest first, older than the pair (before, drop). */
  readonly drops: (
    author: string,
    below: { readonly before: number; readonly drop: string },
  ) => Promise<readonly { readonly drop_id: string; readonly created_at: number }[]>;
  /** A page of whom a user follows; an empty token ends the list. */
  readonly following: (
    user: string,
    token: string,
  ) => Promise<{ readonly ids: readonly string[]; readonly next: string }>;
}

/** What must hold for a message to be applied late. */
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

/** A list longer than this is not a person's. */
const MAX_PAGES = 1_000;

const NOT_CONFIGURED =
  "it is older than the log, and so to be checked against the upstreams: " +
  "set TIMELINE_USER_SERVICE_ADDR and TIMELINE_POST_SERVICE_ADDR";

/**
 * Says how the world has gone on since, where the message must not be applied
 * any more; undefined where it may. Only for messages older than the log: until
 * then tombstones and edge versions win over it by themselves.
 *
 * @throws AppError `invalid` where that cannot be found out.
 */
export async function overtakenBy(
  message: Redriven,
  upstreams: Upstreams | undefined,
  now: number,
): Promise<string | undefined> {
  const claim = claimOf(message, now);
  if (claim.kind === "none") return undefined;
  if (!upstreams) throw new AppError("invalid", NOT_CONFIGURED);
  if (claim.kind === "drop")
    return (await isShown(claim, upstreams)) ? undefined : "overtaken: its drop is not there any more";
  if ((await follows(claim, upstreams)) === claim.follows) return undefined;
  return `overtaken: the follow was ${claim.follows ? "taken back" : "made again"} since`;
}

function claimOf({ stream, subject, body }: Redriven, now: number): Claim {
  if (stream === STREAM.fanout) {
    if (parseJob(body).action === "remove") return { kind: "none" };
    throw new AppError(
      "invalid",
      "it names the followers of a time whose unfollows are forgotten: rebuild their timelines instead",
    );
  }
  if (stream !== STREAM.drops) return { kind: "none" };
  const { name, payload } = parseEvent(eventOfSubject(subject), body, now);
  // A deletion is right for ever: drop ids are not used again.
  if (name === "drop_deleted") return { kind: "none" };
  if (name === "user_followed" || name === "user_unfollowed") {
    const { follower_id: follower, following_id: following } = payload;
    return { kind: "edge", follower, following, follows: name === "user_followed" };
  }
  const { user_id: author, drop_id: drop, created_at } = payload;
  if (author === undefined)
    throw new AppError("invalid", "it is older than the log, and names no author whose drops would show it");
  // A remote drop may have claimed to be younger than it was admitted as.
  const before = name === "ap_drop_received" ? Number.MAX_SAFE_INTEGER : created_at + 1;
  return { kind: "drop", author, drop, created_at, before };
}

async function isShown(claim: Extract<Claim, { kind: "drop" }>, { drops }: Upstreams): Promise<boolean> {
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
