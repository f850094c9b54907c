import { Visibility } from "../../src/gen/avion/posts.js";
import { type Api, openApi } from "./api.js";
import { BusyWorld, type KnownDrop } from "./busy-world.js";
import { below, oneOf, type Random } from "./random.js";

/** They own lists, and listen. */
export const OWNERS = ["ada", "ben"];
/** The first owner hides this user from the beginning. */
const HIDDEN = "gus";
/** They are members of each list from its beginning, and the owners follow them and never hide them. */
export const STEADY = ["cleo", "dan"];
/** Each of them blocks and mutes the other, and ends that. Their acts follow each other. */
const PAIRS: ReadonlyMap<string, string> = new Map([
  ["ada", "eva"],
  ["eva", "ada"],
  ["ben", "fay"],
  ["fay", "ben"],
]);
/** This user approves followers. */
export const APPROVER = "lena";
export const PEOPLE = [...OWNERS, ...STEADY, "eva", "fay", HIDDEN, APPROVER];
const AT_ONCE = 4;

export interface OwnList {
  readonly owner: string;
  readonly members: Set<string>;
  /** All who were members at some time. */
  readonly formerly: Set<string>;
  /** Unset: nobody reads its stream. Else nobody deletes it, and its members change or stay as they are. */
  readonly stream: "of changing members" | "of fixed members" | undefined;
  title: string;
}

/** Whether a user has hidden another one at some time, and does now. */
export type HidingOverTime = "always" | "now" | "once" | "never";

/**
 * A random history on the roles users and posts: drops with replies, mentions, likes and reposts, follows and requests, and
 * lists, blocks and mutes. Acts of several people happen at once; those of one person, and all about one edge, follow each other, so that the
 * record is exact.
 */
export class OwnHistory {
  readonly world: BusyWorld;
  readonly lists = new Map<string, OwnList>();
  readonly deletedLists: { readonly id: string; readonly owner: string }[] = [];
  /** People who have asked to follow the approver. */
  readonly requests = new Set<string>();
  readonly mentions = new Map<string, readonly string[]>();
  /** Each like and repost of a drop, in the order of the answers: those taken back, too. */
  readonly reactions = new Map<string, { readonly kind: "LIKE" | "REPOST"; readonly by: string }[]>();
  /** Likes, reposts, follows and requests that were taken back at some time, in words; of follows, whoever it was. */
  readonly takenBack = new Set<string>();
  /** All follows that stood at some time, as `follower followed`. */
  readonly everFollowed = new Set<string>();
  /** Each pair of people of whom one hid the other at some time, as `user other`. */
  readonly #everHidden = new Set<string>();
  /** Number of things that people have done. */
  length = 0;
  readonly #blocking = new Set<string>();
  readonly #api: Api;

  constructor(
    address: string,
    private readonly random: Random,
  ) {
    this.world = new BusyWorld(address, PEOPLE, random);
    this.#api = openApi(address);
  }

  close(): void {
    this.world.close();
    this.#api.close();
  }

  /** Each of these has a follower, a list has each member, and there are drops to react to. */
  async begin(): Promise<void> {
    const { world } = this;
    await world.call(() => world.users.setProfile({ user_id: APPROVER, approves_followers: true }));
    await world.mute(OWNERS[0] as string, HIDDEN);
    for (const owner of OWNERS) for (const followed of STEADY) await this.#nowFollows(owner, followed);
    for (const [index, owner] of OWNERS.entries()) {
      await this.#createList(owner, "first", index === 0 ? "of changing members" : "of fixed members");
      await this.#createList(owner, "second");
    }
    for (const user of PEOPLE) await world.post(user);
  }

  /** Resolves to the title of a list; undefined if there is none. */
  async titleOf(list_id: string, user_id: string): Promise<string | undefined> {
    return (await this.world.call(() => this.#api.lists.getList({ user_id, list_id })))?.list?.title;
  }

  /** Does so many things at random. */
  async act(count: number): Promise<void> {
    const groups = Array.from({ length: AT_ONCE }, (_, group) => PEOPLE.filter((__, at) => at % AT_ONCE === group));
    await Promise.all(
      groups.map(async (group) => {
        for (let act = 0; act < count / AT_ONCE; act++) await this.#act(oneOf(this.random, group));
      }),
    );
  }

  /** A mute hides one of the two, a block both. */
  hides(user: string, other: string): boolean {
    return [this.world.mutes, this.world.blocks].some((relations) => relations.get(user)?.has(other));
  }

  hidingOverTime(user: string, other: string): HidingOverTime {
    if (user === OWNERS[0] && other === HIDDEN) return "always";
    if (this.hides(user, other)) return "now";
    return this.#everHidden.has(`${user} ${other}`) ? "once" : "never";
  }

  isAlive({ drop_id, repost_of }: KnownDrop): boolean {
    const { drops } = this.world;
    return drops.has(drop_id) && (repost_of === "" || drops.has(repost_of));
  }

  async #act(user: string): Promise<unknown> {
    this.length++;
    const dice = this.random();
    if (dice < 0.25) return this.#post(user);
    if (dice < 0.5) return this.#react(user);
    if (dice < 0.6) return this.#follow(user);
    if (dice < 0.7) return PAIRS.has(user) ? this.#hide(user) : this.#follow(user);
    if (dice < 0.85) return OWNERS.includes(user) ? this.#list(user) : this.#post(user);
    const own = this.world.dropsOf(user).filter((drop) => this.isAlive(drop));
    if (own.length === 0) return this.#post(user);
    const drop = oneOf(this.random, own.slice(-4));
    if (drop.repost_of !== "") this.takenBack.add(`REPOST ${user} ${drop.repost_of}`);
    return this.world.delete(drop);
  }

  async #post(user: string): Promise<void> {
    const { PUBLIC, UNLISTED, FOLLOWERS, DIRECT } = Visibility;
    const visibility = oneOf(this.random, [PUBLIC, PUBLIC, PUBLIC, UNLISTED, FOLLOWERS, DIRECT]);
    const others = PEOPLE.filter((other) => other !== user);
    const recipients = visibility === DIRECT ? [oneOf(this.random, others)] : [];
    const mentions = this.random() < 0.4 ? [oneOf(this.random, others)] : [];
    const parent = visibility !== DIRECT && this.random() < 0.5 ? this.#open() : undefined;
    const reply_to = parent?.drop_id ?? "";
    const drop = await this.world.post(user, { visibility, recipients, mentions, reply_to });
    if (drop) this.mentions.set(drop.drop_id, mentions);
  }

  /** Returns a drop that everybody may see, half of the time by somebody who listens. */
  #open(): KnownDrop | undefined {
    const author = oneOf(this.random, this.random() < 0.5 ? OWNERS : PEOPLE);
    const drops = this.world
      .dropsOf(author)
      .filter((drop) => this.isAlive(drop) && drop.visibility <= Visibility.UNLISTED && drop.repost_of === "");
    return drops.length === 0 ? undefined : oneOf(this.random, drops);
  }

  async #react(user: string): Promise<void> {
    const { world } = this;
    const drop = (this.random() < 0.4 ? this.#liked(user) : undefined) ?? this.#open();
    if (drop === undefined || drop.user_id === user) return;
    const { drop_id } = drop;
    const [likes, repost] = [world.likes.get(drop_id), world.shares.get(drop_id)?.get(user)];
    const took = (kind: string) => this.takenBack.add(`${kind} ${user} ${drop_id}`);
    // Nobody may see the drops of a blocked user.
    if (world.blocks.get(user)?.has(drop.user_id)) return;
    if (likes?.has(user) && this.random() < 0.5) {
      await world.call(() => world.posts.unlikeDrop({ drop_id, user_id: user }));
      likes.delete(user);
      took("LIKE");
    } else if (repost !== undefined && this.random() < 0.5) {
      const known = world.drops.get(repost);
      if (known) await world.delete(known);
      took("REPOST");
    } else if (this.random() < 0.6) {
      if (await world.like(drop_id, user)) this.#noteReaction(drop_id, { kind: "LIKE", by: user });
    } else if (await world.share(drop, user)) this.#noteReaction(drop_id, { kind: "REPOST", by: user });
  }

  /** Returns a drop that the user likes: likes are taken back, too. */
  #liked(user: string): KnownDrop | undefined {
    const { likes, drops } = this.world;
    const liked = [...likes].flatMap(([id, by]) => (by.has(user) ? (drops.get(id) ?? []) : []));
    return liked.length === 0 ? undefined : oneOf(this.random, liked);
  }

  #noteReaction(drop: string, reaction: { readonly kind: "LIKE" | "REPOST"; readonly by: string }): void {
    this.reactions.set(drop, [...(this.reactions.get(drop) ?? []), reaction]);
  }

  async #follow(user: string): Promise<void> {
    const { world } = this;
    const other = oneOf(this.random, this.random() < 0.4 ? OWNERS : PEOPLE);
    if (other === user) return;
    const follows = world.follows.get(user)?.has(other) ?? false;
    if (follows && OWNERS.includes(user) && STEADY.includes(other)) return;
    if (follows) this.takenBack.add(`FOLLOW ${user}`);
    if (other !== APPROVER) return follows ? world.unfollow(user, other) : this.#nowFollows(user, other);
    if (!follows && !this.requests.has(user)) {
      await world.call(() => world.users.follow({ follower_id: user, following_id: APPROVER }));
      this.requests.add(user);
      return;
    }
    if (follows || this.random() < 0.3) await world.unfollow(user, APPROVER);
    else {
      const answer = { user_id: APPROVER, follower_id: user };
      const isAccepted = this.random() < 0.7;
      await world.call(() => (isAccepted ? world.users.acceptFollow(answer) : world.users.rejectFollow(answer)));
      const theirs = world.follows.get(user) ?? new Set();
      if (isAccepted) world.follows.set(user, theirs.add(APPROVER));
      if (isAccepted) this.everFollowed.add(`${user} ${APPROVER}`);
    }
    this.requests.delete(user);
    this.takenBack.add(`FOLLOW_REQUEST ${user}`);
  }

  async #nowFollows(user: string, other: string): Promise<void> {
    if (await this.world.follow(user, other)) this.everFollowed.add(`${user} ${other}`);
  }

  /** Blocks or mutes the other one of a pair, or ends that. A block ends the follows of both. */
  async #hide(user: string): Promise<void> {
    const { world } = this;
    const other = PAIRS.get(user) as string;
    if (world.mutes.get(user)?.has(other)) return world.unmute(user, other);
    if (this.#blocking.delete(user)) return this.#unblock(user, other);
    this.#everHidden.add(`${user} ${other}`);
    if (this.random() < 0.5) return world.mute(user, other);
    this.#everHidden.add(`${other} ${user}`);
    for (const follower of [user, other]) this.takenBack.add(`FOLLOW ${follower}`);
    this.#blocking.add(user);
    await world.block(user, other);
  }

  /** The other one may block the user, too. */
  async #unblock(user: string, other: string): Promise<void> {
    const { users, blocks } = this.world;
    await this.world.call(() => users.unblock({ user_id: user, target_id: other }));
    if (this.#blocking.has(other)) return;
    blocks.get(user)?.delete(other);
    blocks.get(other)?.delete(user);
  }

  async #list(owner: string): Promise<void> {
    const { lists } = this.#api;
    const own = [...this.lists].filter(([, list]) => list.owner === owner);
    if (own.length < 2) return this.#createList(owner, `list of ${owner}`);
    const [list_id, list] = oneOf(this.random, own);
    const kind = below(this.random, 10);
    if (kind === 0) {
      if (list.stream) return;
      await this.world.call(() => lists.deleteList({ user_id: owner, list_id }));
      this.lists.delete(list_id);
      this.deletedLists.push({ id: list_id, owner });
    } else if (kind < 3) {
      const title = `renamed ${this.world.answered}`;
      await this.world.call(() => lists.renameList({ user_id: owner, list_id, title }));
      list.title = title;
    } else {
      const member = oneOf(this.random, PEOPLE);
      if (STEADY.includes(member) || list.stream === "of fixed members") return;
      const change = { user_id: owner, list_id, member_ids: [member] };
      const has = list.members.has(member);
      await this.world.call<object>(() => (has ? lists.removeListMembers(change) : lists.addListMembers(change)));
      list.formerly.add(member);
      if (!list.members.delete(member)) list.members.add(member);
    }
  }

  async #createList(owner: string, title: string, stream?: OwnList["stream"]): Promise<void> {
    const { lists } = this.#api;
    const list_id = (await this.world.call(() => lists.createList({ user_id: owner, title })))?.list?.list_id ?? "";
    const members = new Set([...PEOPLE.filter(() => this.random() < 0.5), ...STEADY]);
    await this.world.call(() => lists.addListMembers({ user_id: owner, list_id, member_ids: [...members] }));
    this.lists.set(list_id, { owner, title, members, formerly: new Set(members), stream });
  }
}
