import {
  ACTORS,
  APPROVER,
  BIG_AUTHOR,
  CHURNERS,
  MUTERS,
  PEOPLE,
  READERS,
  REMOTE_HOST,
  SMALL_AUTHOR,
  SUSPECT,
  steadyFollowings,
  VISIBILITIES,
} from "./history-cast.js";
import { PeopleHistory } from "./history-people.js";
import { below, oneOf, type Random } from "./random.js";
import {
  created,
  deleted,
  edited,
  followed,
  received,
  type TimelineEvent,
  unfollowed,
  type VisibilityName,
} from "./timeline-events.js";
import type { World, WorldDrop } from "./world.js";

export type HistoryOptions = {
  /** False leaves out ActivityPub and edits: no upstream could list what gets lost of them. */
  readonly remote?: boolean;
  /** False leaves out deletions. */
  readonly deletions?: boolean;
  /** False leaves out follows and unfollows after the initial ones. */
  readonly churn?: boolean;
  /** False leaves out replies, reposts, edits, mutes, standings and requests to follow. */
  readonly people?: boolean;
};

/** Drops alone, for tests that make all other changes. */
export const QUIET = { churn: false, deletions: false, remote: false, people: false } as const satisfies HistoryOptions;

/** Generates a random history. Each step changes the upstreams, and returns the events of that change. */
export class EventHistory {
  readonly #start = Date.now() - 60_000;
  #alive: WorldDrop[] = [];
  readonly #people: PeopleHistory;
  #number = 0;

  constructor(
    private readonly random: Random,
    private readonly world: World,
    private readonly options: HistoryOptions = {},
  ) {
    this.#people = new PeopleHistory(random, world);
  }

  /** Returns the follows that are in force from the beginning to the end. */
  initialFollows(): TimelineEvent[] {
    const follow = (reader: string, author: string) => followed(reader, author, this.world.follow(reader, author));
    const steady = READERS.flatMap((reader) => steadyFollowings(reader).map((author) => follow(reader, author)));
    const muters = MUTERS.flatMap((muter) =>
      [BIG_AUTHOR, SMALL_AUTHOR, SUSPECT].map((author) => follow(muter, author)),
    );
    return [...steady, ...muters];
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
    const { churn = true, deletions = true, remote = true, people = true } = this.options;
    const dice = this.random();
    if (dice < 0.2 && churn) return [this.#changeOfEdge()];
    if (dice < 0.32 && deletions && this.#alive.length > 0) return this.#deletion();
    if (dice > 0.9 && remote) return [this.#remote()];
    if (dice > 0.75 && people) return this.random() < 0.4 && remote ? this.#edit() : this.#people.step();
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

  /** With an original go its reposts. */
  #deletion(): TimelineEvent[] {
    const original = oneOf(this.random, this.#alive).drop_id;
    const gone = this.#alive.filter(({ drop_id, repost_of }) => [drop_id, repost_of].includes(original));
    this.#alive = this.#alive.filter((drop) => !gone.includes(drop));
    this.world.remove(...gone.map(({ drop_id }) => drop_id));
    return gone.map(({ drop_id, user_id, remote }) =>
      remote === true || this.random() < 0.25 ? deleted(drop_id) : deleted(drop_id, user_id),
    );
  }

  #edit(): TimelineEvent[] {
    const own = this.#alive.filter(({ remote, repost_of }) => remote !== true && repost_of === undefined);
    if (own.length === 0) return [];
    // All homes have most of the oldest ones: listeners must be told of the edit.
    const { drop_id, user_id } = oneOf(this.random, own.slice(0, 6));
    return [edited(drop_id, user_id, ++this.#number)];
  }

  #remote(): TimelineEvent {
    const created_at = this.#start + below(this.random, 40);
    const user_id = oneOf(this.random, ACTORS);
    const drop_id = `https://${user_id === ACTORS[0] ? REMOTE_HOST : "other.example"}/notes/${this.#number++}`;
    if (user_id !== ACTORS[0] && this.random() < 0.6) return received({ drop_id, created_at });
    const drop = { drop_id, user_id, created_at, ...this.#parent() };
    this.world.post({ ...drop, remote: true });
    this.#alive.push({ ...drop, remote: true });
    return received(drop);
  }

  #publication(): TimelineEvent[] {
    const author = oneOf(this.random, [BIG_AUTHOR, BIG_AUTHOR, SMALL_AUTHOR, SUSPECT, APPROVER, ...CHURNERS]);
    const drop = { ...this.#dropOf(author), ...(this.random() < 0.35 ? this.#original() : this.#parent()) };
    this.world.post(drop);
    this.#alive.push(drop);
    return [created(drop)];
  }

  /** Of a third of the drops, which are replies; nobody knows the author of some of their parents. */
  #parent(): Pick<WorldDrop, "reply_to" | "reply_to_author"> {
    const parents = this.#alive.filter(({ repost_of }) => repost_of === undefined);
    if (this.options.people === false || parents.length === 0 || this.random() > 0.35) return {};
    const { drop_id, user_id } = oneOf(this.random, parents);
    return this.random() < 0.15 ? { reply_to: drop_id } : { reply_to: drop_id, reply_to_author: user_id };
  }

  /** Of a repost: what is public or unlisted. The newest are reposted several times. */
  #original(): Partial<WorldDrop> {
    const originals = this.#alive.filter(
      ({ visibility = "public", repost_of }) => repost_of === undefined && ["public", "unlisted"].includes(visibility),
    );
    if (this.options.people === false || originals.length === 0) return {};
    const { drop_id, user_id, visibility = "public" } = oneOf(this.random, originals.slice(-2));
    const created_at = this.#start + 20 + below(this.random, 20);
    return { repost_of: drop_id, repost_author: user_id, visibility, recipients: [], created_at };
  }

  #dropOf(user_id: string): WorldDrop & { visibility: VisibilityName } {
    const visibility = oneOf(this.random, VISIBILITIES);
    const recipients = visibility === "direct" ? PEOPLE.filter(() => this.random() < 0.3) : [];
    // The drops have few different times, so that many share a millisecond.
    const created_at = this.#start + below(this.random, 40);
    return { drop_id: `drop-${this.#number++}`, user_id, created_at, visibility, recipients };
  }
}
