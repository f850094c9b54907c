import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { createRelationStore } from "../../src/users/relations.sql.js";
import { describeUsers } from "../support/describe-users.js";
import { settle } from "../support/users.js";

const PEOPLE = ["a", "b", "c"] as const;
const FAR = Date.now() + 86_400_000;
const MOST = 3;

interface Mute {
  readonly expires_at: number;
  readonly reposts_only: boolean;
}

/** Who follows, blocks and mutes whom, by `user>target`. */
class Model {
  readonly follows = new Set<string>();
  readonly blocks = new Set<string>();
  readonly mutes = new Map<string, Mute>();

  ofUser(user: string): number {
    return [...this.blocks, ...this.mutes.keys()].filter((pair) => pair.startsWith(`${user}>`)).length;
  }

  /** Some of the mutes have ended. */
  end(): void {
    for (const [pair, { expires_at }] of this.mutes) if (expires_at > 0) this.mutes.delete(pair);
  }
}

/** The model's answer to a step: whether it changes something, or why it is refused. */
type Answer = boolean | "FAILED_PRECONDITION" | "RESOURCE_EXHAUSTED";

const KINDS = ["follow", "unfollow", "block", "unblock", "mute", "unmute"] as const;
interface Step {
  readonly kind: (typeof KINDS)[number];
  readonly user: string;
  readonly target: string;
  readonly mute: Mute;
}

const STEPS: { readonly [Kind in Step["kind"]]: (model: Model, step: Step, pair: string, back: string) => Answer } = {
  follow: (model, _, pair, back) => {
    if (model.blocks.has(pair) || model.blocks.has(back)) return "FAILED_PRECONDITION";
    return !model.follows.has(pair) && !!model.follows.add(pair);
  },
  unfollow: (model, _, pair) => model.follows.delete(pair),
  block: (model, { user }, pair, back) => {
    if (model.blocks.has(pair)) return false;
    if (model.ofUser(user) >= MOST) return "RESOURCE_EXHAUSTED";
    model.follows.delete(pair);
    model.follows.delete(back);
    return !!model.blocks.add(pair);
  },
  unblock: (model, _, pair) => model.blocks.delete(pair),
  mute: (model, { user, mute }, pair) => {
    const before = model.mutes.get(pair);
    if (before?.expires_at === mute.expires_at && before.reposts_only === mute.reposts_only) return false;
    if (before === undefined && model.ofUser(user) >= MOST) return "RESOURCE_EXHAUSTED";
    return !!model.mutes.set(pair, mute);
  },
  unmute: (model, _, pair) => model.mutes.delete(pair),
};

const person = fc.constantFrom(...PEOPLE);
const step = fc
  .record({
    kind: fc.constantFrom(...KINDS),
    user: person,
    target: person,
    mute: fc.record({ expires_at: fc.constantFrom(0, FAR), reposts_only: fc.boolean() }),
  })
  .filter(({ user, target }) => user !== target);
/** Mutes end, and are ended now or later; or everything is published and applied. */
const history = fc.array(
  fc.oneof({ weight: 12, arbitrary: step }, fc.constantFrom("mutes end", "they are ended", "settled")),
  { minLength: 10, maxLength: 40 },
);

describeUsers("random follows, blocks and mutes", { maxRelations: MOST }, ({ db, redis, users, client }, name) => {
  const take = async ({ kind, user, target, mute }: Step) => {
    const isEdge = kind === "follow" || kind === "unfollow";
    const request = isEdge
      ? { follower_id: user, following_id: target }
      : { user_id: user, target_id: target, ...(kind === "mute" ? mute : {}) };
    const call = client[kind] as (request: object) => Promise<{ changed: boolean; version: number }>;
    return call(request).catch(({ details, message }: { details: string; message: string }) => ({
      changed: /^\d+ (\w+)/.exec(message)?.[1] ?? details,
      version: undefined,
    }));
  };

  const expectAs = async (model: Model): Promise<void> => {
    const together = (await client.getHiddenOfMany({ user_ids: [...PEOPLE] })).users;
    expect(together.map(({ user_id }) => user_id)).toEqual(PEOPLE);
    for (const user of PEOPLE) {
      const others = PEOPLE.filter((one) => one !== user);
      const { relations } = await client.getRelations({ user_id: user, target_ids: others });
      const expected = others.map((other) => ({
        target_id: other,
        following: model.follows.has(`${user}>${other}`),
        followed_by: model.follows.has(`${other}>${user}`),
        blocking: model.blocks.has(`${user}>${other}`),
        blocked_by: model.blocks.has(`${other}>${user}`),
        muting: model.mutes.has(`${user}>${other}`),
        mute_reposts_only: model.mutes.get(`${user}>${other}`)?.reposts_only ?? false,
        mute_expires_at: model.mutes.get(`${user}>${other}`)?.expires_at ?? 0,
        requested: false,
      }));
      expect(relations).toEqual(expected);
      const hidden = expected.flatMap((one) => {
        const blocked = one.blocking || one.blocked_by;
        if (!blocked && !one.muting) return [];
        const { target_id, mute_reposts_only, mute_expires_at } = one;
        const mute = { reposts_only: mute_reposts_only, expires_at: mute_expires_at };
        return [{ target_id, blocked, ...(blocked ? { reposts_only: false, expires_at: 0 } : mute) }];
      });
      expect((await client.getHidden({ user_id: user })).hidden).toEqual(hidden);
      expect(together.find(({ user_id }) => user_id === user)?.hidden).toEqual(hidden);
      const targets = (list: readonly { target_id: string }[]) => list.map(({ target_id }) => target_id).sort();
      const { blocks } = await client.listBlocks({ user_id: user });
      expect(targets(blocks)).toEqual(targets(expected.filter(({ blocking }) => blocking)));
      const { mutes } = await client.listMutes({ user_id: user });
      expect(targets(mutes)).toEqual(targets(expected.filter(({ muting }) => muting)));
      const { following } = await client.getFollowCounts({ user_id: user });
      expect(following).toBe(expected.filter((one) => one.following).length);
    }
  };

  test("answers, lists and events are those of a model", async () => {
    const { endMutes } = createRelationStore(db);
    await fc.assert(
      fc.asyncProperty(history, async (steps) => {
        await db.run("TRUNCATE users.relations, users.followings, users.following_counts, users.followers");
        await db.run("TRUNCATE users.follower_counts, public.outbox");
        await redis.raw.flushall();
        const model = new Model();
        const versions = new Map<string, number>();
        const published: { subject: string; body: string }[] = [];
        const publish = async () => void published.push(...(await settle(db, users)));
        for (const one of steps) {
          if (typeof one === "string") {
            if (one === "mutes end") await db.run("UPDATE users.relations SET expires_at = 1 WHERE expires_at > 0");
            if (one === "mutes end") model.end();
            if (one === "they are ended") await endMutes(100);
            if (one === "settled") await publish();
            continue;
          }
          const [pair, back] = [`${one.user}>${one.target}`, `${one.target}>${one.user}`];
          const { changed, version } = await take(one);
          expect(changed).toBe(STEPS[one.kind](model, one, pair, back));
          if (changed === true) {
            const key = `${one.kind.replace("un", "")} ${pair}`;
            expect(version).toBeGreaterThan(versions.get(key) ?? 0);
            versions.set(key, version as number);
          }
        }
        await expectAs(model);
        await endMutes(100);
        await publish();
        await expectAs(model);
        // The newest event of each pair and kind says what stands.
        const standing = new Map<string, boolean>();
        for (const { subject, body } of published.filter((one) => one.subject.startsWith("graph."))) {
          const [, verb = "", kind = ""] = /^graph\.(un)?(\w+)ed$/.exec(subject)?.map((part) => part ?? "") ?? [];
          const { user_id, target_id, follower_id, following_id } = JSON.parse(body) as Record<string, string>;
          standing.set(`${kind} ${user_id ?? follower_id}>${target_id ?? following_id}`, verb === "");
        }
        const told = [...standing].flatMap(([key, stands]) => (stands ? key : [])).sort();
        const stands = [
          ...[...model.follows].map((pair) => `follow ${pair}`),
          ...[...model.blocks].map((pair) => `block ${pair}`),
          ...[...model.mutes.keys()].map((pair) => `mut ${pair}`),
        ];
        expect(told).toEqual(stands.sort());
        for (const user of PEOPLE) {
          const followers = PEOPLE.filter((one) => model.follows.has(`${one}>${user}`));
          expect((await client.getFollowersList({ user_id: user })).user_ids).toEqual(followers);
        }
      }),
      { numRuns: name === "PGlite" ? 10 : 40 },
    );
  });
});
