import type { GetActivityRequest, GetActivityResponse } from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import type { PageLimits } from "../../kernel/paging.js";
import type { StoredDrop } from "../drops/drops.sql.js";
import type { FollowersOf } from "../drops/local-users.js";
import { readDrops } from "../drops/read-drops.js";
import { askingOnce, isHidden, relationsOf } from "../drops/relations.js";
import { readUri, readViewer } from "../drops/request.js";
import { type OwnUri, type OwnUris, urisOf } from "../drops/uris.js";
import { listOfDrop } from "../reactions/lists.js";
import type { RemoteDeps } from "../remote/deps.js";
import { MAX_URI_BYTES } from "../remote/remote-request.js";
import { ACTIVITY_JSON } from "../remote/webfinger.js";
import * as documents from "./documents.js";
import { findNamedDrop, findNamedUser, isErased, namesNothing } from "./resolve-uri.js";

const FOLLOWER_PAGES: PageLimits = { default: 100, max: 100 };

export interface ActivitiesDeps extends RemoteDeps {
  /** Without it no user has followers. */
  readonly followersOf?: FollowersOf | undefined;
}

interface Asked {
  readonly deps: ActivitiesDeps;
  readonly uris: OwnUris;
  readonly named: OwnUri;
  readonly viewer: string | undefined;
}

interface Collection {
  /** Resolves to undefined if the number of items is not known. */
  readonly total: () => Promise<number | undefined>;
  readonly page: (token: string) => Promise<documents.Page>;
}

export const activities = (deps: ActivitiesDeps) => ({
  async getActivity(request: GetActivityRequest): Promise<GetActivityResponse> {
    const uri = readUri("uri", request.uri, MAX_URI_BYTES);
    const viewer = readViewer(request.viewer_id);
    const uris = urisOf(deps.config);
    if (uris === undefined)
      throw new AppError("conflict", "uri: users and drops have no URIs here, since TIMELINE_PUBLIC_URL is not set");
    const named = uris.parse(uri);
    if (named === undefined) throw namesNothing();
    const document = await documentOf({ deps: askingOnce(deps), uris, named, viewer });
    return { json: documents.toJson(document), content_type: ACTIVITY_JSON };
  },
});

async function documentOf(asked: Asked): Promise<documents.Document> {
  const { kind, collection } = asked.named;
  if (collection !== "") return documentOfCollection(asked);
  return kind === "users" ? documentOfUser(asked) : documentOfDrop(asked);
}

async function documentOfUser({ deps, uris, named: { id }, viewer }: Asked): Promise<documents.Document> {
  if (await isErased(deps, id)) return documents.tombstoneOf(uris.ofUser(id), "Person");
  return documents.personOf(uris, await findNamedUser(deps, id, viewer));
}

async function documentOfDrop({ deps, uris, named: { id }, viewer }: Asked): Promise<documents.Document> {
  const drop = await findNamedDrop(deps, id, viewer);
  const isRepost = drop.repost_of !== "";
  if (drop.deleted_at !== null)
    return documents.tombstoneOf(uris.ofDrop(id), isRepost ? "Announce" : "Note", drop.deleted_at);
  return isRepost ? documents.announceOf(uris, drop) : documents.noteOf(uris, drop);
}

async function documentOfCollection(asked: Asked): Promise<documents.Document> {
  const { uris, named } = asked;
  const { kind, id, collection: name, pageToken } = named;
  const collection = await (kind === "users" ? collectionOfUser(asked) : collectionOfDrop(asked));
  const uri = `${kind === "users" ? uris.ofUser(id) : uris.ofDrop(id)}/${name}`;
  if (pageToken === undefined) return documents.collectionOf(uri, await collection.total());
  return documents.pageOf(uri, pageToken, await collection.page(pageToken));
}

async function collectionOfUser({ deps, uris, named: { id, collection }, viewer }: Asked): Promise<Collection> {
  if (collection !== "followers" || (await isErased(deps, id))) throw namesNothing();
  await findNamedUser(deps, id, viewer);
  const { followersOf = async () => ({ ids: [], next: "", total: 0 }) } = deps;
  return {
    total: async () => (await followersOf(id, 1, "")).total,
    page: async (page_token) => {
      const list = ["activity-followers", id, viewer ?? ""] as const;
      const page = deps.tokens.open<[string]>(list, { page_size: 0, page_token }, FOLLOWER_PAGES);
      const { ids, next } = await followersOf(id, FOLLOWER_PAGES.default, page.after?.[0] ?? "");
      // A page ends where the users service ends it: the token of this list contains that of the users service.
      const { next_page_token } = page.pageOf<string>([], () => [""], next === "" ? undefined : [next]);
      const shown = await shownFollowers(deps, ids, viewer);
      return { items: shown.map((follower) => documents.uriOfUser(uris, follower)), next_page_token };
    },
  };
}

/** Omits users whom the viewer hides, as the lists of likes and shares do. */
async function shownFollowers(
  deps: ActivitiesDeps,
  all: readonly string[],
  viewer: string | undefined,
): Promise<readonly string[]> {
  const ids = all.filter((id) => !deps.isSuspended?.(id));
  if (viewer === undefined) return ids;
  const relations = await relationsOf(deps, { field: "viewer_id", user: viewer }, ids);
  return ids.filter((id) => !isHidden(relations?.get(id)));
}

async function collectionOfDrop({ deps, uris, named, viewer }: Asked): Promise<Collection> {
  const { id: drop_id, collection } = named;
  const drop = await findNamedDrop(deps, drop_id, viewer);
  const items = COLLECTIONS_OF_DROPS.get(collection);
  if (items === undefined || drop.deleted_at !== null || drop.repost_of !== "") throw namesNothing();
  return {
    total: async () => (await deps.store.reactions.counts([drop_id]))[0]?.[items.count] ?? 0,
    page: (page_token) =>
      items.page({ deps, uris }, drop, { drop_id, viewer_id: viewer ?? "", page_size: 0, page_token }),
  };
}

interface DropListRequest {
  readonly drop_id: string;
  readonly viewer_id: string;
  readonly page_size: number;
  readonly page_token: string;
}

type ReadPage = (
  from: Pick<Asked, "deps" | "uris">,
  drop: StoredDrop,
  request: DropListRequest,
) => Promise<documents.Page>;

const reactionsOf =
  (kind: "like" | "share"): ReadPage =>
  async ({ deps, uris }, { drop_id }, request) => {
    const { items, next_page_token } = await listOfDrop(deps, kind, request);
    const type = kind === "like" ? "Like" : "Announce";
    const object = uris.ofDrop(drop_id);
    return { items: items.map((reaction) => documents.reactionOf(uris, type, object, reaction)), next_page_token };
  };

const repliesOf: ReadPage = async ({ deps, uris }, _, request) => {
  const { items, next_page_token } = await readDrops(deps).listReplies(request);
  const uriOf = (id: string): string => documents.uriOfDrop(uris, id);
  return { items: items.map(({ drop, remote }) => uriOf(drop?.drop_id ?? remote?.uri ?? "")), next_page_token };
};

const COLLECTIONS_OF_DROPS = new Map<string, { count: "likes" | "shares" | "replies"; page: ReadPage }>([
  ["likes", { count: "likes", page: reactionsOf("like") }],
  ["shares", { count: "shares", page: reactionsOf("share") }],
  ["replies", { count: "replies", page: repliesOf }],
]);
