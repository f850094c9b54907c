import { type ServiceError, status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { Visibility } from "../../src/gen/avion/posts.js";
import type { Api } from "./api.js";
import { becomes, eventually } from "./eventually.js";
import { ListModel, type ModelDrop, modelDrop } from "./list-model.js";
import { below, oneOf, seeded } from "./random.js";
import type { EventStream } from "./sse.js";

const { UNLISTED, FOLLOWERS, DIRECT } = Visibility;
const USERS = ["ada", "bob", "cat", "star", "eve"];
const OTHERS = USERS.filter((user) => user !== "ada");
/** A change of an author's state waits until no process uses an older copy of the registry. */
const PULLED_MS = 30_000;

/** Commands of a server or a cluster. */
interface RedisCommands {
  readonly del: (key: string) => Promise<unknown>;
  readonly exists: (key: string) => Promise<number>;
  readonly hget: (key: string, field: string) => Promise<string | null>;
  readonly zscore: (key: string, member: string) => Promise<string | null>;
}

/** Changes that the services may refuse, as between blocked people: then nothing has changed. */
const unlessRefused = async (call: () => Promise<void>): Promise<void> =>
  call().catch((error: ServiceError) => {
    if (![status.NOT_FOUND, status.FAILED_PRECONDITION].includes(error.code)) throw error;
  });

interface Bench {
  readonly api: Api;
  readonly redis: RedisCommands;
  /** Waits until the pages of the list show these drops. */
  readonly shows: (list: string, ids: readonly string[]) => Promise<void>;
  readonly openStream: (list: string) => Promise<EventStream>;
  readonly rounds: number;
  readonly seed: number;
}

/**
 * Makes a random history of drops, members, follows, blocks and losses around a list of ada, of which star is pulled, and
 * compares its pages and its stream with the model. A step waits until fan-out has applied the one before.
 */
export async function runListHistory({ api, redis, shows, openStream, rounds, seed }: Bench): Promise<void> {
  const random = seeded(seed);
  const stateOf = async (author: string) => (await redis.hget("timeline:x:pulled", author)) ?? "pushed";
  for (const follower of ["f0", "f1", "f2", "f3"]) await api.follow({ follower_id: follower, following_id: "star" });
  const model = new ListModel("ada");
  const list_id = await api.createList("ada");
  const key = `timeline:list:${list_id}`;
  const told: string[] = [];
  /** Drops that follow a change too soon: an answer about the list may be a second old. */
  const mayBeTold = new Set<string>();
  let revokedAt = Date.now();
  const keep = (drop: ModelDrop) => {
    if (model.drops.has(drop.drop_id)) return;
    model.drops.set(drop.drop_id, drop);
    if (model.sees(drop)) told.push(drop.drop_id);
    else if (Date.now() - revokedAt < 2_000) mayBeTold.add(drop.drop_id);
  };
  const alive = (isWanted: (drop: ModelDrop) => boolean) => {
    const drops = [...model.drops.values()].filter(isWanted);
    return drops.length === 0 ? undefined : oneOf(random, drops);
  };
  const isOpen = ({ visibility, original }: ModelDrop) => visibility <= UNLISTED && original === undefined;
  const post = async () => {
    const user = oneOf(random, USERS);
    const visibility = oneOf(random, [Visibility.PUBLIC, Visibility.PUBLIC, UNLISTED, FOLLOWERS, DIRECT]);
    const recipients = visibility === DIRECT ? ["cat", "ada"].slice(below(random, 2)) : [];
    const parent = random() < 0.5 && visibility !== DIRECT ? alive(isOpen) : undefined;
    await unlessRefused(async () => {
      const drop = await api.post(user, { visibility, recipients, reply_to: parent?.drop_id ?? "" });
      keep(modelDrop(drop, { parent: parent?.author }));
    });
  };
  const share = async () => {
    const [user_id, original] = [oneOf(random, USERS), alive(isOpen)];
    if (!original) return;
    await unlessRefused(async () => {
      const { repost_id } = await api.share({ user_id, drop_id: original.drop_id });
      const { drop } = await api.getDrop({ drop_id: repost_id });
      if (drop) keep(modelDrop(drop, { original }));
    });
  };
  const remove = async () => {
    const drop = alive(({ original }) => original === undefined);
    if (!drop) return;
    await api.deleteDrop({ drop_id: drop.drop_id, user_id: drop.author });
    model.remove(drop.drop_id);
  };
  const member = async () => {
    const user = oneOf(random, USERS);
    const change = { user_id: "ada", list_id, member_ids: [user] };
    await shows(list_id, model.shown());
    if (model.members.delete(user)) await api.lists.removeListMembers(change);
    else {
      model.members.add(user);
      await api.lists.addListMembers(change);
    }
    await eventually(async () => (await redis.zscore(key, "~floor")) === null, "fan-out knows of the change");
    revokedAt = Date.now();
  };
  const follow = async () => {
    const user = oneOf(random, OTHERS);
    const pair = { follower_id: "ada", following_id: user };
    revokedAt = Date.now();
    if (model.followed.delete(user)) return void (await api.unfollow(pair));
    await unlessRefused(async () => {
      await api.follow(pair);
      model.followed.add(user);
    });
  };
  const hide = async () => {
    const [user, isBlock] = [oneOf(random, OTHERS), random() < 0.5];
    const pair = { user_id: "ada", target_id: user };
    const isHidden = !model.hidden.delete(user);
    if (!isHidden) await Promise.all([api.unblock(pair), api.unmute(pair)]);
    else {
      model.hidden.add(user);
      if (isBlock) model.followed.delete(user);
      await (isBlock ? api.block(pair) : api.mute(pair));
    }
    const copy = "timeline:x:hidden:{timeline:home:ada}";
    const isKnown = async () =>
      (await redis.exists(copy)) === 0 || ((await redis.hget(copy, user)) !== null) === isHidden;
    await eventually(isKnown, "fan-out knows of the relation");
    revokedAt = Date.now();
  };
  const lose = async () => {
    await redis.del(oneOf(random, [key, `timeline:x:bylines:{${key}}`, "timeline:author:star"]));
  };
  for (const user of ["bob", "star"]) {
    model.members.add(user);
    await api.lists.addListMembers({ user_id: "ada", list_id, member_ids: [user] });
  }
  keep(modelDrop(await api.post("star")));
  told.length = 0;
  await eventually(async () => (await stateOf("star")).startsWith("pulled"), "star is pulled", PULLED_MS);
  const steps = [post, post, post, post, post, share, share, remove, member, member, follow, follow, hide, lose];
  await shows(list_id, model.shown());
  const stream = await openStream(list_id);
  const tells = () =>
    becomes(async () => expect(stream.drops().filter((drop) => !mayBeTold.has(drop))).toEqual(told), 10_000);
  for (let round = 0; round < rounds; round++) {
    for (let step = 0; step < 3; step++) {
      await oneOf(random, steps)();
      await tells();
    }
    await shows(list_id, model.shown());
  }
  expect(await stateOf("star")).toMatch(/^pulled/);
  expect(model.drops.size).toBeGreaterThan(rounds / 2);
  expect(told.length).toBeGreaterThan(rounds / 4);
  expect(stream.events.filter(({ event }) => event === "reset")).toEqual([]);
  stream.close();
}
