import { rm } from "node:fs/promises";
import { credentials, type ServiceError, status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { PostServiceClient, PostServiceService, RemoteReactionKind, Visibility } from "../../src/gen/avion/posts.js";
import { type Api, openApi } from "../support/api.js";
import { temporaryFolder } from "../support/brokers.js";
import { becomes } from "../support/eventually.js";
import { type Calls, callsOf } from "../support/grpc.js";
import { openReader, pagesDown, type Reader } from "../support/reader.js";
import { type EventStream, openEvents } from "../support/sse.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { homeKey } from "../support/timeline-keys.js";

const { FOLLOWERS } = Visibility;
const HERE = "https://here.example";
const EVE = "https://far.example/users/eve";
const NOTE = "https://far.example/notes/1";
/** The smallest bound of a home. */
const MAX_ENTRIES = 10;

/**
 * Ada and Eve are authors, Fay follows both of them and Par, to whose drop they reply. They mention Men, and Foe, who
 * blocks both. Sam is nobody in particular.
 */
const VIEWERS = ["ada", EVE, "fay", "par", "men", "foe", "sam"];
const HAVE_HOMES = VIEWERS.filter((viewer) => viewer !== EVE);

interface Scene {
  readonly api: Api;
  readonly posts: Calls<typeof PostServiceService>;
  readonly reads: Reader;
  readonly httpUrl: string;
  readonly streams: ReadonlyMap<string, EventStream>;
}

async function openScene(stack: Stack): Promise<Scene> {
  const folder = await temporaryFolder("data");
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const { httpUrl, grpcAddress } = await stack.start({
    roles: "users,posts,bridge,fanout,api,gateway",
    env: {
      ...{ TIMELINE_DATA_DIR: folder, TIMELINE_USER_SERVICE_ADDR: "", TIMELINE_POST_SERVICE_ADDR: "" },
      ...{ TIMELINE_MAX_ENTRIES: String(MAX_ENTRIES), TIMELINE_PUBLIC_URL: HERE },
    },
  });
  const api = openApi(grpcAddress);
  const client = new PostServiceClient(grpcAddress, credentials.createInsecure());
  const reads = openReader(grpcAddress);
  for (const open of [api, client, reads]) stack.defer(() => open.close());
  for (const following_id of ["ada", EVE, "par"]) {
    await api.follow({ follower_id: "fay", following_id });
    // Fan-out reads the list of followers.
    const followers = () => api.followers({ user_id: following_id, page_size: 0, page_token: "" });
    await becomes(async () => expect((await followers()).user_ids).toEqual(["fay"]));
  }
  for (const target_id of ["ada", EVE]) await api.block({ user_id: "foe", target_id });
  const streams = new Map<string, EventStream>();
  for (const viewer of HAVE_HOMES) {
    const stream = await openEvents(httpUrl, viewer);
    stack.defer(() => stream.close());
    streams.set(viewer, stream);
  }
  return { api, posts: callsOf(client, PostServiceService), reads, httpUrl, streams };
}

type Way = (viewer_id: string) => Promise<readonly (string | undefined)[]>;

interface Row {
  readonly ways: Readonly<Record<string, Way>>;
  readonly drop: string;
  readonly seenBy: readonly string[];
}

/** A call that is NOT_FOUND shows nothing. */
const unlessHidden = (call: ReturnType<Way>): ReturnType<Way> =>
  call.catch((error: ServiceError) => {
    if (error.code === status.NOT_FOUND) return [];
    throw error;
  });

async function expectSeen(rows: readonly Row[], viewers: readonly string[]): Promise<void> {
  for (const { ways, drop, seenBy } of rows)
    for (const [way, see] of Object.entries(ways)) {
      const seen = await Promise.all(
        viewers.map(async (viewer) => ((await unlessHidden(see(viewer))).includes(drop) ? [viewer] : [])),
      );
      expect({ way, drop, seenBy: seen.flat() }).toEqual({
        ...{ way, drop, seenBy: viewers.filter((viewer) => seenBy.includes(viewer)) },
      });
    }
}

interface Reply {
  readonly drop: string;
  readonly author: string;
  readonly parent: string;
}

/** All ways to a reply by its id, and by lists. */
function waysById({ posts }: Scene, { drop, author, parent }: Reply): Record<string, Way> {
  const of = (id: string) => ({ drop_id: id, page_size: 0, page_token: "" });
  const by = (user_id: string) => ({ user_id, page_size: 0, page_token: "" });
  const idOf = ({
    drop: local,
    remote,
  }: {
    drop?: { drop_id: string } | undefined;
    remote?: { uri: string } | undefined;
  }) => local?.drop_id ?? remote?.uri;
  const whole = (call: Promise<unknown>) => call.then(() => [drop]);
  const liked = async (call: Promise<{ likes: { user_id: string }[] }>) =>
    (await call).likes.some(({ user_id }) => user_id === "fay") ? [drop] : [];
  return {
    GetDrops: async (viewer_id) => (await posts.getDrops({ drop_ids: [drop], viewer_id })).results.map(idOf),
    GetThread: async (viewer_id) => {
      const thread = await posts.getThread({ ...of(drop), viewer_id });
      expect(thread.ancestors.map(idOf)).toEqual([parent]);
      return [idOf(thread.drop ?? {})];
    },
    "GetThread of the parent": async (viewer_id) =>
      (await posts.getThread({ ...of(parent), viewer_id })).replies.map(({ reply }) => idOf(reply ?? {})),
    "ListReplies of the parent": async (viewer_id) =>
      (await posts.listReplies({ ...of(parent), viewer_id })).items.map(idOf),
    ListReplies: (viewer_id) => whole(posts.listReplies({ ...of(drop), viewer_id })),
    ListLikes: (viewer_id) => liked(posts.listLikes({ ...of(drop), viewer_id })),
    ListUserLikes: async (viewer_id) =>
      (await posts.listUserLikes({ ...by("fay"), viewer_id })).likes.map(({ drop_id }) => drop_id),
    ListUserDrops: async (viewer_id) => {
      const { drops, items } = await posts.listUserDrops({ ...by(author), viewer_id, replies: true });
      return [...drops.map(({ drop_id }) => drop_id), ...items.map(idOf)];
    },
    "its own method": async (viewer_id) => {
      if (author === EVE) return [(await posts.getRemoteObject({ uri: drop, viewer_id })).object?.uri];
      await posts.listRevisions({ ...of(drop), viewer_id });
      return [(await posts.getDrop({ drop_id: drop, viewer_id })).drop?.drop_id];
    },
  };
}

/** Documents of drops of this server, and what hangs from them. */
function documentsOf({ posts }: Scene, drop: string): Record<string, Way> {
  const read = async (path: string, viewer_id: string) => {
    const { json } = await posts.getActivity({ uri: `${HERE}/drops/${path}`, viewer_id });
    return JSON.parse(json) as { readonly orderedItems?: readonly unknown[] };
  };
  return Object.fromEntries(
    ["", "/likes", "/replies"].map((path) => [
      `GetActivity of ${path || "the note"}`,
      (viewer: string) => read(drop + path, viewer).then(() => [drop]),
    ]),
  );
}

testWithStack(
  "a drop for followers is seen by them, by whom it names and by nobody else, in each way that shows it",
  { service: false, timeoutMs: 120_000 },
  async (stack) => {
    const scene = await openScene(stack);
    const { api, posts, reads, httpUrl, streams } = scene;
    const parent = (await api.post("par")).drop_id;
    const before = new Map([...streams].map(([viewer, stream]) => [viewer, stream.lastId()]));

    const local = await api.post("ada", { visibility: FOLLOWERS, reply_to: parent, mentions: ["men", "foe"] });
    const tag = ["men", "foe"].map((name) => ({ type: "Mention", href: `${HERE}/users/${name}` }));
    const document = JSON.stringify({ inReplyTo: `${HERE}/drops/${parent}`, tag });
    await api.putRemote({ uri: NOTE, actor_uri: EVE, visibility: FOLLOWERS, document });
    const replies: readonly Reply[] = [
      { drop: local.drop_id, author: "ada", parent },
      { drop: NOTE, author: EVE, parent },
    ];
    for (const { drop } of replies) await api.like({ drop_id: drop, user_id: "fay" });
    const named = (author: string) => [author, "fay", "par", "men"];
    const followers = (author: string) => [author, "fay"];
    await expectSeen(
      [
        ...replies.map((reply) => ({ ways: waysById(scene, reply), drop: reply.drop, seenBy: named(reply.author) })),
        { ways: documentsOf(scene, local.drop_id), drop: local.drop_id, seenBy: named("ada") },
      ],
      VIEWERS,
    );
    // Without a viewer the lists are for everybody.
    for (const { drop } of replies) {
      expect((await posts.listReplies({ drop_id: parent })).items).toEqual([]);
      await expect(posts.getActivity({ uri: `${HERE}/drops/${drop}` })).rejects.toMatchObject({
        code: status.NOT_FOUND,
      });
    }

    // A drop of one's own is in one's home after those that were made before it.
    for (const [viewer, stream] of streams) {
      const { drop_id } = await api.post(viewer);
      await becomes(async () => expect(stream.drops()).toContain(drop_id));
    }
    const inHomes = (ways: Record<string, Way>): Row[] =>
      replies.map(({ drop, author }) => ({ ways, drop, seenBy: followers(author) }));
    await becomes(async () =>
      expect(streams.get("fay")?.drops()).toEqual(expect.arrayContaining(replies.map(({ drop }) => drop))),
    );
    const resumed = async (viewer: string) => {
      const stream = await openEvents(httpUrl, viewer, before.get(viewer));
      await becomes(async () =>
        expect(stream.drops().length).toBeGreaterThanOrEqual(streams.get(viewer)?.drops().length ?? 0),
      );
      stream.close();
      return stream.drops();
    };
    const home: Way = async (viewer) => (await reads.home(viewer)).drop_ids;
    const stream: Way = async (viewer) => streams.get(viewer)?.drops() ?? [];
    await expectSeen(inHomes({ home, "a stream": stream, "a stream that is resumed": resumed }), HAVE_HOMES);

    for (let number = 0; number < 2 * MAX_ENTRIES; number++) await api.post("ada", { body: `${number}` });
    const whole = async (viewer: string) => {
      const pages = await pagesDown((query) => reads.home(viewer, query), { limit: 5 });
      return pages.flatMap(({ drop_ids }) => drop_ids);
    };
    await becomes(async () => {
      for (const { drop } of replies) expect(await stack.redis.zscore(homeKey("fay"), drop)).toBeNull();
    });
    await expectSeen(inHomes({ "a home past its cap": whole }), HAVE_HOMES);
  },
);

testWithStack(
  "a share is seen by its own audience, whoever may see the drop",
  { service: false, timeoutMs: 90_000 },
  async (stack) => {
    const scene = await openScene(stack);
    const { api, posts, reads } = scene;
    const open = (await api.post("par")).drop_id;
    const own = (await api.post("ada", { visibility: FOLLOWERS, mentions: ["men"] })).drop_id;
    const ofAda = await api.share({ drop_id: own, user_id: "ada" });
    const put = { kind: RemoteReactionKind.SHARE, actor_uri: EVE, created_at: 0, object: open };
    const ofEve = await api.putReaction({ ...put, uri: `${EVE}/shares/1`, visibility: FOLLOWERS });
    const ofAll = await api.share({ drop_id: open, user_id: "sam" });
    const shares = [
      { drop: own, sharer: "ada", repost: ofAda.repost_id, seenBy: ["ada", "fay"] },
      { drop: open, sharer: EVE, repost: ofEve.repost_id, seenBy: [EVE, "fay"] },
      { drop: open, sharer: "sam", repost: ofAll.repost_id, seenBy: VIEWERS },
    ];
    const rows = shares.map(({ drop, sharer, repost, seenBy }): Row => {
      const of = { page_size: 0, page_token: "" };
      const ways: Record<string, Way> = {
        ListShares: async (viewer_id) => {
          const listed = await posts.listShares({ drop_id: drop, ...of, viewer_id });
          return listed.shares.some(({ user_id }) => user_id === sharer) ? [repost] : [];
        },
        ListUserShares: async (viewer_id) => {
          const listed = await posts.listUserShares({ user_id: sharer, ...of, viewer_id });
          return listed.shares.some(({ drop_id }) => drop_id === drop) ? [repost] : [];
        },
        ListUserDrops: async (viewer_id) => {
          const { drops } = await posts.listUserDrops({ user_id: sharer, reposts: true, ...of, viewer_id });
          return drops.map(({ drop_id }) => drop_id);
        },
        GetDrops: async (viewer_id) =>
          (await posts.getDrops({ drop_ids: [repost], viewer_id })).results.map((result) => result.drop?.drop_id),
      };
      return { ways, drop: repost, seenBy };
    });
    await expectSeen(rows, VIEWERS);
    expect((await posts.listShares({ drop_id: open })).shares.map(({ user_id }) => user_id)).toEqual(["sam"]);
    await becomes(async () =>
      expect((await reads.home("fay")).drop_ids).toEqual(expect.arrayContaining([ofAda.repost_id, ofEve.repost_id])),
    );
    for (const viewer of ["par", "men", "foe", "sam"]) {
      const { drop_ids } = await reads.home(viewer);
      expect(drop_ids.filter((id) => [ofAda.repost_id, ofEve.repost_id].includes(id))).toEqual([]);
    }
  },
);
