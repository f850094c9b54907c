import { below, oneOf, type Random } from "./random.js";
import {
  created,
  deleted,
  followed,
  received,
  type TimelineEvent,
  unfollowed,
  type VisibilityName,
} from "./timeline-events.js";
import type { World, WorldDrop } from "./world.js";

export type HistoryOptions = {
  /** False leaves out ActivityPub: no upstream could list what gets lost of it. */
  readonly remote?: boolean;
  /** False leaves out deletions. */
  readonly deletions?: boolean;
  /** False leaves out follows and unfollows after the initial ones. */
  readonly churn?: boolean;
};

/** Readers never change whom they follow after the initial follows. */
export const READERS = Array.from({ length: 20 }, (_, number) => `reader-${number}`);
/** All readers follow this author: with small chunks the audience takes several. */
export const BIG_AUTHOR = "alice";
/** Five readers follow this author: the audience is written at once. */
export const SMALL_AUTHOR = "anna";
/** They follow and unfollow everybody. */
export const CHURNERS = ["ada", "ben", "cleo", "dan@example.org", "*"];
export const ACTORS = ["https://remote.example/users/rita", "remote-rob"];
export const VISIBILITIES = ["public", "public", "unlisted", "followers", "direct"] as const;

/** All of these have a home timeline. */
export const PEOPLE = [BIG_AUTHOR, SMALL_AUTHOR, ...CHURNERS, ...READERS];

/** Returns whom a reader follows from the beginning to the end. */
export function steadyFollowings(reader: string): readonly string[] {
  const place = READERS.indexOf(reader);
  if (place < 0) return [];
  return place < 5 ? [BIG_AUTHOR, SMALL_AUTHOR] : [BIG_AUTHOR];
}

/** Returns the users who follow an author from the beginning to the end. */
export function steadyFollowers(author: string): readonly string[] {
  return READERS.filter((reader) => steadyFollowings(reader).includes(author));
}

/** Generates a random history. Each step changes the upstreams, and returns the events of that change. */
export class EventHistory {
  readonly #start = Date.now() - 60_000;
  readonly #alive: WorldDrop[] = [];
  #number = 0;

  constructor(
    private readonly random: Random,
    private readonly world: World,
    private readonly options: HistoryOptions = {},
  ) {}

  /** Returns the follows that are in force from the beginning to the end. */
  initialFollows(): TimelineEvent[] {
    return READERS.flatMap((reader) =>
      steadyFollowings(reader).map((author) => followed(reader, author, this.world.follow(reader, author))),
    );
  }

  /** Returns the events of the next steps. */
  next(steps: number): TimelineEvent[] {
    return Array.from({ length: steps }, () => this.#step()).flat();
  }

  /** Publishes one drop of the author with the given fields. */
  post(author: string, stated: Partial<WorldDrop> = {}): TimelineEvent {
    const drop = { ...this.#dropOf(author), ...stated };
    this.world.post(drop);
    return created(drop);
  }

  #step(): TimelineEvent[] {
    const { churn = true, deletions = true, remote = true } = this.options;
    const dice = this.random();
    if (dice < 0.2 && churn) return [this.#changeOfEdge()];
    if (dice < 0.32 && deletions && this.#alive.length > 0) return [this.#deletion()];
    if (dice > 0.88 && remote) return [this.#remote()];
    return this.#publication();
  }

  #changeOfEdge(): TimelineEvent {
    const { world } = this;
    const follower = oneOf(this.random, CHURNERS);
    const others = [BIG_AUTHOR, SMALL_AUTHOR, ...CHURNERS, ...(this.options.remote === false ? [] : ACTORS)];
    const author = oneOf(
      this.random,
      others.filter((person) => person !== follower),
    );
    if (world.follows(follower, author)) return unfollowed(follower, author, world.unfollow(follower, author));
    return followed(follower, author, world.follow(follower, author));
  }

  #deletion(): TimelineEvent {
    const [gone] = this.#alive.splice(below(this.random, this.#alive.length), 1);
    if (gone === undefined) throw new Error("nothing to delete");
    this.world.remove(gone.drop_id);
    return gone.remote === true || this.random() < 0.25 ? deleted(gone.drop_id) : deleted(gone.drop_id, gone.user_id);
  }

  #remote(): TimelineEvent {
    const created_at = this.#start + below(this.random, 40);
    const drop_id = `https://remote.example/notes/${this.#number++}`;
    if (this.random() < 0.3) return received({ drop_id, created_at });
    const drop = { drop_id, user_id: oneOf(this.random, ACTORS), created_at };
    this.world.post({ ...drop, remote: true });
    this.#alive.push({ ...drop, remote: true });
    return received(drop);
  }

  #publication(): TimelineEvent[] {
    const author = oneOf(this.random, [BIG_AUTHOR, BIG_AUTHOR, SMALL_AUTHOR, ...CHURNERS]);
    const drop = this.#dropOf(author);
    this.world.post(drop);
    this.#alive.push(drop);
    return [created(drop)];
  }

  #dropOf(user_id: string): WorldDrop & { visibility: VisibilityName } {
    const visibility = oneOf(this.random, VISIBILITIES);
    const recipients = visibility === "direct" ? PEOPLE.filter(() => this.random() < 0.3) : [];
    // The drops have few different times, so that many share a millisecond.
    const created_at = this.#start + below(this.random, 40);
    return { drop_id: `drop-${this.#number++}`, user_id, created_at, visibility, recipients };
  }
}
