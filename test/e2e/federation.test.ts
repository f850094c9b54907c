import { expect } from "@jest/globals";
import { RemoteKind, RemoteReactionKind, Visibility } from "../../src/gen/avion/posts.js";
import { connectWorld } from "../../src/sandbox/world/world.grpc.js";
import { openApi } from "../support/api.js";
import { startCommand } from "../support/command.js";
import { becomes } from "../support/eventually.js";
import { databaseOf } from "../support/own-database.js";
import { openReader } from "../support/reader.js";
import { startStack } from "../support/stack.js";
import { quickTest } from "../support/suite.js";

const EVE = "https://far.example/users/eve";
const NOTE = "https://far.example/notes/1";

quickTest(
  "what remote actors do reaches the homes of their followers, and goes with the actor",
  async () => {
    const stack = await startStack({ service: false });
    try {
      const database = await databaseOf(stack);
      const own = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "", ...database };
      const service = await stack.start({ roles: "users,posts,bridge,fanout,api,gateway", env: own });
      const api = openApi(service.grpcAddress);
      stack.defer(() => api.close());
      const reads = openReader(service.grpcAddress);
      stack.defer(() => reads.close());
      const home = async () => (await reads.home("ada")).drop_ids;
      const counts = async (drop_id: string) => (await api.counts({ drop_ids: [drop_id] })).counts[0];

      await api.follow({ follower_id: "ada", following_id: EVE });
      await becomes(async () => {
        const { user_ids } = await api.followers({ user_id: EVE, page_size: 0, page_token: "" });
        expect(user_ids).toEqual(["ada"]);
      });
      // The collection is not known before the actor is.
      const audience = { visibility: Visibility.UNSPECIFIED, document: '{"to":"https://far.example/f/7"}' };
      await api.putRemote({ uri: NOTE, actor_uri: EVE, ...audience });
      const actor = { kind: RemoteKind.ACTOR, created_at: 0, visibility: Visibility.UNSPECIFIED };
      await api.putRemote({ uri: EVE, ...actor, document: '{"followers":"https://far.example/f/7"}' });
      await becomes(async () => expect(await home()).toEqual([NOTE]));

      const drop = await api.post("ada");
      const react = (kind: RemoteReactionKind, object: string) =>
        api.putReaction({ uri: `${NOTE}#${kind}`, actor_uri: EVE, object, kind, created_at: 0 });
      await react(RemoteReactionKind.LIKE, drop.drop_id);
      const { repost_id } = await react(RemoteReactionKind.SHARE, drop.drop_id);
      await api.putRemote({ uri: `${NOTE}/reply`, actor_uri: EVE, reply_to: drop.drop_id });
      // The repost covers the drop.
      await becomes(async () => expect(await home()).toEqual([`${NOTE}/reply`, repost_id, NOTE]));
      await becomes(async () => expect(await counts(drop.drop_id)).toMatchObject({ likes: 1, shares: 1, replies: 1 }));
      await api.deleteReaction({ uri: `${NOTE}#${RemoteReactionKind.SHARE}` });
      await becomes(async () => expect(await home()).toEqual([`${NOTE}/reply`, drop.drop_id, NOTE]));

      await api.deleteRemote({ uri: EVE, kind: RemoteKind.UNSPECIFIED });
      await becomes(async () => expect(await home()).toEqual([drop.drop_id]));
      await becomes(async () => expect((await api.erasure({ user_id: EVE })).erasure?.status).toBe("completed"));
      expect((await api.following({ user_id: "ada", page_size: 0, page_token: "" })).user_ids).toEqual([]);
      await becomes(async () => expect(await counts(drop.drop_id)).toMatchObject({ likes: 0, shares: 0, replies: 0 }));
      await expect(api.follow({ follower_id: "ada", following_id: EVE })).rejects.toThrow(/FAILED_PRECONDITION/);
      expect(await stack.streams.count("DLQ")).toBe(0);
      if (!("DATABASE_URL" in database)) return;
      const verify = startCommand(stack, ["erase", "verify", EVE], database);
      const { code } = await verify.exited;
      expect({ code, left: code === 0 ? "" : verify.output() }).toEqual({ code: 0, left: "" });
    } catch (error) {
      throw stack.explain(error);
    } finally {
      await stack.stop();
    }
  },
  120_000,
);

quickTest(
  "other servers get documents of local users, and address them by their URIs",
  async () => {
    const stack = await startStack({ service: false });
    try {
      const here = "https://here.example";
      const database = await databaseOf(stack);
      const own = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "", TIMELINE_PUBLIC_URL: here };
      const service = await stack.start({
        roles: "users,posts,bridge,fanout,api,gateway",
        env: { ...own, ...database },
      });
      const world = connectWorld(service.grpcAddress);
      stack.defer(() => world.close());
      const { users, posts, timelines } = world;
      const document = async (path: string) => JSON.parse((await posts.getActivity({ uri: here + path })).json);

      await users.setProfile({ user_id: "ada", display_name: "Ada" });
      expect(await document("/users/ada")).toMatchObject({ type: "Person", name: "Ada" });
      await users.follow({ follower_id: EVE, following_id: "ada" });
      await users.follow({ follower_id: "ada", following_id: EVE });
      await becomes(async () => expect(await document("/users/ada/followers")).toMatchObject({ totalItems: 1 }));
      expect(await document("/users/ada/followers?page_token=")).toMatchObject({ orderedItems: [EVE] });
      const note = { uri: NOTE, kind: RemoteKind.DROP, actor_uri: EVE, document: `{"to":"${here}/users/ada"}` };
      await posts.putRemoteObject(note);
      await becomes(async () => expect((await timelines.getHomeTimeline({ user_id: "ada" })).drop_ids).toEqual([NOTE]));
      await users.eraseUser({ user_id: "ada" });
      await becomes(async () => expect(await document("/users/ada")).toMatchObject({ type: "Tombstone" }));
    } catch (error) {
      throw stack.explain(error);
    } finally {
      await stack.stop();
    }
  },
  120_000,
);

quickTest(
  "a process fetches from other servers only with TIMELINE_FETCH, and only from public addresses",
  async () => {
    const stack = await startStack({ service: false });
    try {
      const remote = { uri: "https://127.0.0.1/notes/1", viewer_id: "", fetch: true };
      for (const [env, answer] of [
        [{}, "NOT_FOUND: uri: there is no such object"],
        [{ TIMELINE_FETCH: "on" }, "NOT_FOUND: uri: its server has no public address"],
      ] as const) {
        const upstreams = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
        const service = await stack.start({
          roles: "posts",
          env: { ...upstreams, ...(await databaseOf(stack)), ...env },
        });
        const api = openApi(service.grpcAddress);
        stack.defer(() => api.close());
        await expect(api.getRemote(remote)).rejects.toThrow(answer);
      }
    } catch (error) {
      throw stack.explain(error);
    } finally {
      await stack.stop();
    }
  },
  120_000,
);
