import { setTimeout as delay } from "node:timers/promises";
import { type ServiceError, status } from "@grpc/grpc-js";
import { STORED_TIMELINES_VARIABLES } from "../../src/contracts/config.js";
import { type DropDetails, Visibility } from "../../src/gen/avion/posts.js";
import { connectWorld } from "../../src/sandbox/world/world.grpc.js";
import { below, oneOf, type Random } from "./random.js";
import { onceIn, REPOST_WINDOW } from "./reposts-once.js";
import { newestFirst } from "./world.js";

export interface KnownDrop extends Pick<DropDetails, "drop_id" | "user_id" | "visibility" | "created_at"> {
  readonly recipients: readonly string[];
  readonly reply_to: string;
  readonly repost_of: string;
}

/** What a call may answer while servers die. */
const PASSING: readonly number[] = [
  status.UNAVAILABLE,
  status.DEADLINE_EXCEEDED,
  status.CANCELLED,
  status.INTERNAL,
  status.UNKNOWN,
];
/** A reply to a drop that is gone is an invalid argument. */
const REFUSED: readonly number[] = [status.FAILED_PRECONDITION, status.NOT_FOUND, status.INVALID_ARGUMENT];
const PATIENCE_MS = 120_000;
/** True if homes leave out replies to people whom their users do not follow, by default. */
const JUDGES_REPLIES = (STORED_TIMELINES_VARIABLES.homeReplies.default as string) === "followed";

/**
 * People who follow, post, reply, like, share and write to each other through the users and posts services, and a record
 * of what was accepted. Each call is repeated until it is answered, under a key of its own where it makes something, so
 * that the record is exact although servers die. It never looks into the services.
 */
export class BusyWorld {
  readonly drops = new Map<string, KnownDrop>();
  readonly deleted = new Map<string, KnownDrop>();
  readonly follows = new Map<string, Set<string>>();
  readonly mutes = new Map<string, Set<string>>();
  /** Of each user, those whom they block and who block them. */
  readonly blocks = new Map<string, Set<string>>();
  readonly likes = new Map<string, Set<string>>();
  readonly shares = new Map<string, Map<string, string>>();
  /** Calls that were answered, and attempts that met an outage. */
  answered = 0;
  unanswered = 0;
  readonly #api: ReturnType<typeof connectWorld>;
  /** It holds deleted drops, too. */
  readonly #byAuthor = new Map<string, KnownDrop[]>();
  #keys = 0;

  /** `address` serves both services, whichever process has it. */
  constructor(
    address: string,
    readonly people: readonly string[],
    private readonly random: Random,
    /** False: people reply to themselves only, which versions of all times show alike. */
    private readonly answersOthers = true,
  ) {
    this.#api = connectWorld(address);
  }

  get users() {
    return this.#api.users;
  }

  get posts() {
    return this.#api.posts;
  }

  close(): void {
    this.#api.close();
  }

  /** Repeats a call until it is answered; undefined where it is refused. */
  async call<T>(once: () => Promise<T>): Promise<T | undefined> {
    for (const end = Date.now() + PATIENCE_MS; ; ) {
      try {
        const answer = await once();
        this.answered += 1;
        return answer;
      } catch (error) {
        const { code } = error as ServiceError;
        if (REFUSED.includes(code)) return undefined;
        this.unanswered += 1;
        if (!PASSING.includes(code) || Date.now() > end) throw error;
        await delay(100);
      }
    }
  }

  async follow(follower_id: string, following_id: string): Promise<boolean> {
    if (!(await this.call(() => this.users.follow({ follower_id, following_id })))) return false;
    of(this.follows, follower_id).add(following_id);
    return true;
  }

  async unfollow(follower_id: string, following_id: string): Promise<void> {
    await this.call(() => this.users.unfollow({ follower_id, following_id }));
    this.follows.get(follower_id)?.delete(following_id);
  }

  /** Neither follows the other any more. */
  async block(user_id: string, target_id: string): Promise<void> {
    await this.call(() => this.users.block({ user_id, target_id }));
    for (const [one, other] of [
      [user_id, target_id],
      [target_id, user_id],
    ] as const) {
      this.follows.get(one)?.delete(other);
      of(this.blocks, one).add(other);
    }
  }

  async mute(user_id: string, target_id: string): Promise<void> {
    await this.call(() => this.users.mute({ user_id, target_id }));
    of(this.mutes, user_id).add(target_id);
  }

  async unmute(user_id: string, target_id: string): Promise<void> {
    await this.call(() => this.users.unmute({ user_id, target_id }));
    this.mutes.get(user_id)?.delete(target_id);
  }

  /** So many follows of each, of others at random, in few calls. */
  async followAtRandom(each: number): Promise<void> {
    const pairs = this.people.flatMap((follower_id) => {
      const others = new Set(Array.from({ length: each }, () => oneOf(this.random, this.people)));
      return [...others].filter((one) => one !== follower_id).map((following_id) => ({ follower_id, following_id }));
    });
    for (let at = 0; at < pairs.length; at += 1_000) {
      const follows = pairs.slice(at, at + 1_000);
      await this.call(() => this.users.followMany({ follows }));
      for (const { follower_id, following_id } of follows) of(this.follows, follower_id).add(following_id);
    }
  }

  async post(
    user_id: string,
    more: {
      readonly visibility?: Visibility;
      readonly recipients?: string[];
      readonly reply_to?: string;
      readonly mentions?: string[];
    } = {},
  ): Promise<KnownDrop | undefined> {
    const { visibility = Visibility.PUBLIC, recipients = [], reply_to = "", mentions = [] } = more;
    const stated = { user_id, visibility, recipients, reply_to, mentions };
    this.#keys += 1;
    const idempotency_key = `key-${this.#keys}`;
    const answer = await this.call(() => this.posts.createDrop({ ...stated, body: idempotency_key, idempotency_key }));
    if (answer?.drop === undefined) return undefined;
    const { drop_id, created_at } = answer.drop;
    return this.#add({ drop_id, user_id, visibility, created_at, recipients, reply_to, repost_of: "" });
  }

  async delete(drop: KnownDrop): Promise<void> {
    const { drop_id, user_id } = drop;
    await this.call(() => this.posts.deleteDrop({ drop_id, user_id }));
    this.shares.get(drop.repost_of)?.delete(user_id);
    for (const gone of [drop_id, ...(this.shares.get(drop_id)?.values() ?? [])]) {
      const known = this.drops.get(gone);
      if (known) this.deleted.set(gone, known);
      this.drops.delete(gone);
    }
  }

  async like(drop_id: string, user_id: string): Promise<boolean> {
    if (!(await this.call(() => this.posts.likeDrop({ drop_id, user_id })))) return false;
    of(this.likes, drop_id).add(user_id);
    return true;
  }

  async share(original: KnownDrop, user_id: string): Promise<boolean> {
    const answer = await this.call(() => this.posts.shareDrop({ drop_id: original.drop_id, user_id }));
    if (answer === undefined) return false;
    const repost = await this.call(() => this.posts.getDrop({ drop_id: answer.repost_id, viewer_id: "", revision: 0 }));
    const shares = this.shares.get(original.drop_id) ?? new Map<string, string>();
    this.shares.set(original.drop_id, shares.set(user_id, answer.repost_id));
    const by = { user_id, repost_of: original.drop_id };
    if (repost?.drop) this.#add({ ...repost.drop, ...by });
    // The author of the original has deleted it meanwhile.
    else this.deleted.set(answer.repost_id, { ...original, ...by, drop_id: answer.repost_id, reply_to: "" });
    return true;
  }

  /** Does something at random as `user`, about `about` or anybody's newest drops. */
  async act(user: string, about = oneOf(this.random, this.people)): Promise<boolean> {
    const theirs = this.dropsOf(about).filter(
      ({ visibility, repost_of }) => visibility === Visibility.PUBLIC && repost_of === "",
    );
    const drop = theirs.length === 0 ? undefined : oneOf(this.random, theirs);
    const kind = below(this.random, 6);
    if (kind === 0 && about !== user) return this.follow(user, about);
    if (kind === 1 && about !== user)
      return (await this.post(user, { visibility: Visibility.DIRECT, recipients: [about] })) !== undefined;
    if (drop === undefined || kind === 2) return (await this.post(user)) !== undefined;
    if (kind === 3) return this.like(drop.drop_id, user);
    if (kind === 4) return this.share(drop, user);
    const own = this.dropsOf(user).find(({ visibility, repost_of }) => visibility <= 2 && repost_of === "");
    const parent = this.answersOthers ? drop : own;
    return (await this.post(user, { reply_to: parent?.drop_id ?? "" })) !== undefined;
  }

  /** Forgets a person, as an oracle that never knew them: with their drops go the reposts of these. */
  forget(person: string): void {
    const isTheirs = (drop?: KnownDrop): boolean => drop?.user_id === person;
    const gone = [...this.drops.values()].filter((drop) => isTheirs(drop) || isTheirs(this.drops.get(drop.repost_of)));
    for (const { drop_id } of gone) this.drops.delete(drop_id);
    this.follows.delete(person);
    for (const followed of this.follows.values()) followed.delete(person);
    for (const [id, likers] of this.likes)
      if (!this.drops.has(id)) this.likes.delete(id);
      else likers.delete(person);
    for (const [id, sharers] of this.shares)
      if (!this.drops.has(id)) this.shares.delete(id);
      else sharers.delete(person);
  }

  /** The newest ids that pages of a home must show: of a drop and its reposts the newest one in so many places. */
  page(user: string, limit: number, repostWindow = REPOST_WINDOW): string[] {
    const entries = this.home(user, Number.POSITIVE_INFINITY).map((drop) => {
      const { repost_of, user_id, created_at } = this.drops.get(drop) as KnownDrop;
      return { drop, score: created_at, by: { author: user_id, ...(repost_of !== "" && { repostOf: repost_of }) } };
    });
    return onceIn(entries, repostWindow)
      .slice(0, limit)
      .map(({ drop }) => drop);
  }

  /** The newest ids that a home must have. */
  home(user: string, limit: number): string[] {
    const isHidden = (author = ""): boolean =>
      [this.mutes, this.blocks].some((relations) => relations.get(user)?.has(author));
    const theirs = [...(this.follows.get(user) ?? [])]
      .filter((author) => !isHidden(author))
      .flatMap((author) => this.dropsOf(author))
      .filter(({ visibility, recipients }) => visibility !== Visibility.DIRECT || recipients.includes(user));
    const isForUser = (drop: KnownDrop): boolean => {
      const parent = this.#answered(drop);
      if (parent === undefined || parent === user) return true;
      return !isHidden(parent) && (!JUDGES_REPLIES || (this.follows.get(user)?.has(parent) ?? false));
    };
    // Nobody's own reposts and replies are hidden from themselves.
    const shown = theirs.filter((drop) => !isHidden(this.drops.get(drop.repost_of)?.user_id) && isForUser(drop));
    return newest([...this.dropsOf(user), ...shown], limit);
  }

  /** The author of the parent of a reply to somebody else. */
  #answered({ user_id, reply_to, repost_of, visibility }: KnownDrop): string | undefined {
    const parent = (this.drops.get(reply_to) ?? this.deleted.get(reply_to))?.user_id;
    return repost_of !== "" || visibility === Visibility.DIRECT || parent === user_id ? undefined : parent;
  }

  local(limit: number): string[] {
    const isShown = (drop: KnownDrop): boolean =>
      drop.visibility === Visibility.PUBLIC &&
      drop.repost_of === "" &&
      !(JUDGES_REPLIES && this.#answered(drop) !== undefined);
    return newest([...this.drops.values()].filter(isShown), limit);
  }

  dropsOf(author: string): KnownDrop[] {
    return (this.#byAuthor.get(author) ?? []).filter(({ drop_id }) => this.drops.has(drop_id));
  }

  countsOf(drop: string) {
    const replies = [...this.drops.values()].filter(
      ({ reply_to, visibility }) => reply_to === drop && visibility <= Visibility.UNLISTED,
    );
    const [likes, shares] = [this.likes.get(drop)?.size ?? 0, this.shares.get(drop)?.size ?? 0];
    return { drop_id: drop, likes, shares, replies: replies.length };
  }

  followersOf(user: string): string[] {
    return [...this.follows].filter(([, followed]) => followed.has(user)).map(([follower]) => follower);
  }

  #add(drop: KnownDrop): KnownDrop {
    if (!this.drops.has(drop.drop_id))
      this.#byAuthor.set(drop.user_id, [...(this.#byAuthor.get(drop.user_id) ?? []), drop]);
    this.drops.set(drop.drop_id, drop);
    return drop;
  }
}

function newest(drops: readonly KnownDrop[], limit: number): string[] {
  const ordered = [...drops].sort(newestFirst).slice(0, limit);
  return ordered.map(({ drop_id }) => drop_id);
}

function of<Key>(sets: Map<Key, Set<string>>, key: Key): Set<string> {
  const known = sets.get(key) ?? new Set<string>();
  sets.set(key, known);
  return known;
}
