import { status } from "@grpc/grpc-js";
import { beforeEach, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { RemoteKind, RemoteReactionKind, Visibility } from "../../src/gen/avion/posts.js";
import { createFollowedAmong } from "../../src/posts/relations.grpc.js";
import { connectUsers } from "../../src/upstreams/upstreams.grpc.js";
import { describePostsWithUsers } from "../support/describe-posts-with-users.js";
import { post, refusal, startPosts } from "../support/posts.js";

const { PUBLIC, FOLLOWERS, DIRECT } = Visibility;
const HOST = "https://far.example";

describePostsWithUsers("reactions to hidden drops", (running) => {
  let people = 0;
  let [ada, bob, cid, far] = ["", "", "", ""];
  beforeEach(() => {
    people++;
    [ada, bob, cid, far] = [`ada-${people}`, `bob-${people}`, `cid-${people}`, `${HOST}/users/${people}`];
  });

  const calls = () => running.posts.call;
  const by = (user_id: string, fields: object = {}) => post(running.posts, { user_id, ...fields });
  let remotes = 0;
  const newUri = (): string => `${HOST}/notes/${++remotes}`;
  const remoteDrop = async (fields: object): Promise<string> => {
    const uri = newUri();
    await calls().putRemoteObject({ uri, kind: RemoteKind.DROP, actor_uri: far, document: "{}", ...fields });
    return uri;
  };
  const remotely = (object: string, kind: RemoteReactionKind, actor_uri: string) =>
    calls().putRemoteReaction({ uri: newUri(), actor_uri, object, kind });

  /** Each act of a user about a drop, and the field that names the drop. */
  const ACTS = {
    like: ["drop_id", (drop_id: string, user_id: string) => calls().likeDrop({ drop_id, user_id })],
    share: ["drop_id", (drop_id: string, user_id: string) => calls().shareDrop({ drop_id, user_id })],
    reply: ["reply_to", (reply_to: string, user_id: string) => by(user_id, { reply_to })],
    "reply with a key": [
      "reply_to",
      (reply_to: string, user_id: string) => by(user_id, { reply_to, idempotency_key: `k${++remotes}` }),
    ],
  } as const;
  /** The same acts of a remote actor. */
  const REMOTE_ACTS = {
    like: ["object", (object: string, actor: string) => remotely(object, RemoteReactionKind.LIKE, actor)],
    share: ["object", (object: string, actor: string) => remotely(object, RemoteReactionKind.SHARE, actor)],
    reply: [
      "reply_to",
      (reply_to: string, actor_uri: string) => remoteDrop({ reply_to, actor_uri, visibility: PUBLIC }),
    ],
  } as const;

  const deleted = async (drop_id: string): Promise<string> => {
    await calls().deleteDrop({ drop_id, user_id: ada });
    return drop_id;
  };
  const repostOfHidden = async (viewer: string): Promise<string> => {
    const { repost_id } = await calls().shareDrop({ drop_id: await by(ada), user_id: cid });
    running.world.block(ada, viewer);
    return repost_id;
  };

  /** Each reason for which a viewer sees no drop of this server. */
  const HIDDEN: Record<string, (viewer: string) => Promise<string>> = {
    "is for followers of whom the user is none": () => by(ada, { visibility: FOLLOWERS }),
    "is direct, and for somebody else": () => by(ada, { visibility: DIRECT, recipients: [cid] }),
    "is by somebody who blocks the user": async (viewer) => {
      running.world.block(ada, viewer);
      return by(ada);
    },
    "is by somebody whom the user blocks": async (viewer) => {
      running.world.block(viewer, ada);
      return by(ada);
    },
    "is a repost of a drop by somebody who blocks the user": repostOfHidden,
    "was for followers, and is deleted": async () => deleted(await by(ada, { visibility: FOLLOWERS })),
  };
  const REMOTE_HIDDEN: Record<string, (viewer: string) => Promise<string>> = {
    "is remote, and for followers": () => remoteDrop({ visibility: FOLLOWERS }),
    "is remote, and direct": () => remoteDrop({ visibility: DIRECT, recipients: [cid] }),
    "is remote, and by somebody who blocks the user": async (viewer) => {
      running.world.block(far, viewer);
      return remoteDrop({ visibility: PUBLIC });
    },
  };

  const ALL = { ...HIDDEN, ...REMOTE_HIDDEN };
  test.each(Object.keys(ACTS).flatMap((act) => Object.keys(ALL).map((reason) => [act, reason] as const)))(
    "a %s of a drop that %s is refused as one of an unknown drop, and makes no event",
    async (act, reason) => {
      const [field, react] = ACTS[act as keyof typeof ACTS];
      const drop = (await ALL[reason]?.(bob)) as string;
      expect((await calls().getDrops({ drop_ids: [drop], viewer_id: bob })).results).toEqual([]);
      await running.posts.written();
      const unknown = drop.startsWith(HOST) ? newUri() : v7();
      expect(await refusal(react(unknown, bob))).toBe(`NOT_FOUND ${field}: there is no such drop`);
      expect(await refusal(react(drop, bob))).toBe(`NOT_FOUND ${field}: there is no such drop`);
      expect(await running.posts.written()).toEqual([]);
    },
  );

  const REASONS = Object.keys(HIDDEN).filter((reason) => !reason.includes("deleted"));
  test.each(Object.keys(REMOTE_ACTS).flatMap((act) => REASONS.map((reason) => [act, reason] as const)))(
    "a %s by a remote actor of a drop that %s is NOT_FOUND, and makes no event",
    async (act, reason) => {
      const [field, react] = REMOTE_ACTS[act as keyof typeof REMOTE_ACTS];
      const drop = (await HIDDEN[reason]?.(far)) as string;
      await running.posts.written();
      expect(await refusal(react(drop, far))).toBe(`NOT_FOUND ${field}: there is no such drop`);
      expect(await running.posts.written()).toEqual([]);
    },
  );

  test.each(Object.keys(ALL))(
    "who has done nothing to a drop that %s learns from no withdrawal, edit or deletion that there is one",
    async (reason) => {
      const drop = (await ALL[reason]?.(bob)) as string;
      await running.posts.written();
      const change = { drop_id: drop, user_id: bob };
      const withdrawals = [() => calls().unlikeDrop(change), () => calls().unshareDrop(change)];
      const changes = [() => calls().editDrop({ ...change, body: "x" }), () => calls().deleteDrop(change)];
      for (const act of [...withdrawals, ...(drop.startsWith(HOST) ? [] : changes)])
        expect(await refusal(act())).toBe("NOT_FOUND drop_id: there is no such drop");
      expect(await running.posts.written()).toEqual([]);
    },
  );

  test("those for whom a drop is like it and reply to it, also those whom it names and remote actors", async () => {
    running.world.follow(bob, ada);
    running.world.follow(far, ada);
    const forFollowers = await by(ada, { visibility: FOLLOWERS, mentions: [cid] });
    const direct = await by(ada, { visibility: DIRECT, recipients: [bob, cid, far] });
    for (const drop of [forFollowers, direct]) {
      for (const user of [ada, bob, cid]) {
        expect(await calls().likeDrop({ drop_id: drop, user_id: user })).toEqual({ changed: true });
        await by(user, { reply_to: drop, visibility: FOLLOWERS });
      }
      await remotely(drop, RemoteReactionKind.LIKE, far);
      await remoteDrop({ reply_to: drop, visibility: PUBLIC });
    }
    const reply = await by(bob, { reply_to: forFollowers, visibility: FOLLOWERS });
    expect(await calls().likeDrop({ drop_id: reply, user_id: ada })).toEqual({ changed: true });
    running.world.follow(cid, far);
    const remote = await remoteDrop({ visibility: FOLLOWERS });
    expect(await calls().likeDrop({ drop_id: remote, user_id: cid })).toEqual({ changed: true });
    await by(cid, { reply_to: remote });
  });

  test("a reaction to a drop that is hidden later can be taken back, and repeating that changes nothing", async () => {
    for (const author of [ada, far]) running.world.follow(bob, author);
    const drops = [await by(ada, { visibility: FOLLOWERS }), await remoteDrop({ visibility: FOLLOWERS })];
    const open = [await by(ada), await remoteDrop({ visibility: PUBLIC })];
    for (const drop_id of [...drops, ...open]) await calls().likeDrop({ drop_id, user_id: bob });
    for (const drop_id of open) await calls().shareDrop({ drop_id, user_id: bob });
    for (const author of [ada, far]) running.world.block(author, bob);
    for (const changed of [true, false]) {
      for (const drop_id of [...drops, ...open])
        expect(await calls().unlikeDrop({ drop_id, user_id: bob })).toEqual({ changed });
      for (const drop_id of open) expect(await calls().unshareDrop({ drop_id, user_id: bob })).toEqual({ changed });
    }
  });

  test("a remote reply that is stored is updated although its parent is hidden by now, and an answer to a deleted direct drop is stored", async () => {
    running.world.follow(far, ada);
    const drop = await by(ada, { visibility: FOLLOWERS });
    const reply = { uri: newUri(), kind: RemoteKind.DROP, actor_uri: far, reply_to: drop, visibility: PUBLIC };
    await calls().putRemoteObject({ ...reply, document: "{}" });
    running.world.unfollow(far, ada);
    const { object } = await calls().putRemoteObject({ ...reply, document: '{"content":"again"}' });
    expect(object?.document).toBe('{"content":"again"}');
    const direct = await deleted(await by(ada, { visibility: DIRECT, recipients: [far] }));
    await remoteDrop({ reply_to: direct, visibility: DIRECT, recipients: [ada] });
  });

  test("remote actors, whose follows are not all known here, like each other's drops whatever their audience", async () => {
    const drop = await remoteDrop({ visibility: FOLLOWERS });
    expect((await remotely(drop, RemoteReactionKind.LIKE, `${HOST}/users/other-${people}`)).created).toBe(true);
  });

  test("a like, a share and a reply cost one call of the UserService, and none if the drop is one's own or for others", async () => {
    const asked = (user: string) => running.upstreams.calls("GetRelations", user);
    running.world.follow(bob, ada);
    const [open, forFollowers] = [await by(ada), await by(ada, { visibility: FOLLOWERS })];
    const direct = await by(ada, { visibility: DIRECT, recipients: [cid] });
    let expected = 0;
    for (const [, react] of Object.values(ACTS)) {
      await react(open, bob);
      expect(asked(bob)).toBe(++expected);
      await refusal(react(direct, bob));
      await react(await by(bob), bob);
      expect(asked(bob)).toBe(expected);
    }
    await ACTS.like[1](forFollowers, bob);
    await ACTS.reply[1](forFollowers, bob);
    expect(asked(bob)).toBe(expected + 2);
    expect(running.upstreams.calls("GetFollowingList", bob)).toBe(0);
  });

  test("while the UserService is unavailable, acts that depend on it are UNAVAILABLE, make no event, and come through afterwards", async () => {
    running.world.follow(bob, ada);
    running.world.follow(far, ada);
    const drop = await by(ada, { visibility: FOLLOWERS });
    await running.posts.written();
    const acts = [ACTS.like[1], ACTS.reply[1]].map((act) => () => act(drop, bob));
    const remote = [REMOTE_ACTS.like[1], REMOTE_ACTS.reply[1]].map((act) => () => act(drop, far));
    const restore = running.upstreams.inject({ method: "GetRelations", code: status.UNAVAILABLE });
    try {
      for (const act of acts) expect(await refusal(act())).toMatch(/^UNAVAILABLE user_id: the users they block/);
      for (const act of remote) expect(await refusal(act())).toMatch(/^UNAVAILABLE actor_uri: the users they block/);
      expect(await running.posts.written()).toEqual([]);
    } finally {
      restore();
    }
    for (const act of [...acts, ...remote]) await act();
  });

  test("a UserService without relations is asked for follows, and errors name the user of the request", async () => {
    const users = connectUsers(running.upstreams.usersAddress, {});
    const posts = await startPosts(running.posts.db, { followedAmong: createFollowedAmong(users) });
    running.world.follow(bob, ada);
    const drop = await by(ada, { visibility: FOLLOWERS });
    const like = (user_id: string) => posts.call.likeDrop({ drop_id: drop, user_id });
    try {
      expect(await refusal(like(cid))).toBe("NOT_FOUND drop_id: there is no such drop");
      const restore = running.upstreams.inject({ method: "GetFollowingList", code: status.UNAVAILABLE });
      expect(await refusal(like(bob))).toBe("UNAVAILABLE user_id: the users they follow are not known");
      restore();
      expect(await like(bob)).toEqual({ changed: true });
    } finally {
      users.close();
      await posts.stop();
    }
  });
});
