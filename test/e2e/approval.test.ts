import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "@jest/globals";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { becomes, eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { openEvents } from "../support/sse.js";
import { testWithStack } from "../support/stack.js";

const OWN = { TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" };
const EVE = "https://far.example/users/eve";
const NOTE = "https://far.example/notes/1";

testWithStack(
  "before a follow is accepted nothing for followers is shown by page, stream, id or list; after it all is",
  { service: false },
  async (stack) => {
    const folder = await temporaryFolder("data");
    stack.defer(() => rm(folder, { recursive: true, force: true }));
    const roles = "users,posts,bridge,fanout,api,gateway";
    const service = await stack.start({ roles, env: { ...OWN, TIMELINE_DATA_DIR: join(folder, "data") } });
    const api = openApi(service.grpcAddress);
    const reads = openReader(service.grpcAddress);
    stack.defer(() => api.close());
    stack.defer(() => reads.close());
    const home = async (user = "ada") => (await reads.home(user, { limit: 100 })).drop_ids;
    const post = async (user: string, visibility = Visibility.PUBLIC) => (await api.post(user, { visibility })).drop_id;
    const listed = async () =>
      (await api.userDrops({ user_id: "bob", viewer_id: "ada" })).drops.map(({ drop_id }) => drop_id);

    await api.setProfile({ user_id: "bob", approves_followers: true });
    await api.follow({ follower_id: "ada", following_id: "cat" });
    await becomes(async () =>
      expect((await api.followers({ user_id: "cat", page_size: 0, page_token: "" })).total_count).toBe(1),
    );
    const stream = await openEvents(service.httpUrl, "ada");
    const pending = { changed: true, pending: true };
    expect(await api.follow({ follower_id: "ada", following_id: "bob" })).toMatchObject(pending);
    const [open, closed] = [await post("bob"), await post("bob", Visibility.FOLLOWERS)];
    const actor = { kind: RemoteKind.ACTOR, created_at: 0, visibility: Visibility.UNSPECIFIED };
    const document = JSON.stringify({ type: "Person", manuallyApprovesFollowers: true, followers: `${EVE}/followers` });
    await api.putRemote({ uri: EVE, ...actor, document });
    expect(await api.follow({ follower_id: "ada", following_id: EVE })).toMatchObject(pending);
    await api.putRemote({ uri: NOTE, actor_uri: EVE, visibility: Visibility.FOLLOWERS });
    // Drops that were posted before are applied by then.
    const cats = await post("cat");
    await eventually(() => stream.drops().includes(cats), "a drop of somebody who is followed");
    await becomes(async () => expect((await reads.global({ limit: 100 })).drop_ids).toContain(open));
    expect([stream.drops(), await home(), await listed()]).toEqual([[cats], [cats], [open]]);
    await expect(api.getDrop({ drop_id: closed, viewer_id: "ada" })).rejects.toThrow(/NOT_FOUND/);
    await expect(api.getRemote({ uri: NOTE, viewer_id: "ada", fetch: false })).rejects.toThrow(/NOT_FOUND/);

    const { requests } = await api.requests({ user_id: "bob" });
    expect(requests.map(({ user_id }) => user_id)).toEqual(["ada"]);
    await api.accept({ user_id: "bob", follower_id: "ada" });
    await becomes(async () => expect(await home()).toEqual([cats, closed, open]));
    expect([await listed(), (await api.getDrop({ drop_id: closed, viewer_id: "ada" })).drop?.drop_id]).toEqual([
      ...[[closed, open], closed],
    ]);
    const next = await post("bob", Visibility.FOLLOWERS);
    await eventually(() => stream.drops().includes(next), "the next drop on the stream");
    stream.close();
    await api.accept({ user_id: EVE, follower_id: "ada" });
    await becomes(async () => expect(await home()).toEqual([next, cats, NOTE, closed, open]));

    await api.removeFollower({ user_id: "bob", follower_id: "ada" });
    await becomes(async () => expect(await home()).toEqual([cats, NOTE]));
    await expect(api.getDrop({ drop_id: closed, viewer_id: "ada" })).rejects.toThrow(/NOT_FOUND/);
    expect(await api.follow({ follower_id: "ada", following_id: "bob" })).toMatchObject(pending);
    await api.setProfile({ user_id: "bob", approves_followers: false });
    await becomes(async () => expect(await home()).toEqual([next, cats, NOTE, closed, open]));
    expect(await stack.streams.count("DLQ")).toBe(0);
  },
);
