import { type CallOptions, type Client, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import {
  CreateDropRequest,
  type DropDetails,
  type GetDropResponse,
  PostServiceClient,
  Visibility,
} from "../../gen/avion/posts.js";
import { UserServiceClient } from "../../gen/avion/users.js";
import { SECOND } from "../../kernel/time.js";
import { CHANNEL_OPTIONS, clientCredentials } from "../../platform/grpc/call.js";

interface UserSummary {
  readonly user_id: string;
  readonly followers: number;
  readonly following: number;
}

/** A drop as the page and the demo show it. */
export interface SeenDrop {
  readonly drop_id: string;
  readonly author: string;
  /** ms since the epoch; null of a deleted drop. */
  readonly created_at: number | null;
  readonly visibility: string | null;
  readonly body: string;
  readonly deleted: boolean;
}

export interface DropDraft {
  readonly user_id: string;
  readonly visibility: Visibility;
  readonly recipients?: readonly string[];
  readonly body: string;
  /** ms since the epoch; unset: now. */
  readonly created_at?: number;
}

export interface Pair {
  readonly follower_id: string;
  readonly following_id: string;
}

/** The actions of people, by the public API of the users and posts services. */
export interface People {
  introduce(user: string, name: string): Promise<void>;
  isKnown(user: string): Promise<boolean>;
  /** User ids that begin with a prefix, by their bytes. */
  list(prefix: string, limit: number): Promise<string[]>;
  summary(user: string): Promise<UserSummary>;
  /** The first page. */
  followingOf(user: string): Promise<string[]>;
  follow(pair: Pair): Promise<boolean>;
  unfollow(pair: Pair): Promise<boolean>;
  /** At most 1,000 at once; resolves to how many were new. */
  followMany(pairs: readonly Pair[]): Promise<number>;
  post(draft: DropDraft): Promise<SeenDrop>;
  /** Undefined of an unknown or deleted drop. */
  remove(dropId: string): Promise<SeenDrop | undefined>;
  drop(dropId: string): Promise<SeenDrop | undefined>;
  /** In the order asked for; an unknown drop has only its id. */
  drops(dropIds: readonly string[]): Promise<SeenDrop[]>;
}

type Method<Request, Response> = (
  request: Request,
  metadata: Metadata,
  options: Partial<CallOptions>,
  callback: (error: ServiceError | null, response: Response) => void,
) => unknown;

const TIMEOUT_MS = 10 * SECOND;

/** Turns a method with a callback into one with a promise and a deadline of 10 s. */
function calling<Request, Response>(
  client: Client,
  method: Method<Request, Response>,
): (request: Request) => Promise<Response> {
  return (request) =>
    new Promise((resolve, reject) => {
      const options = { deadline: Date.now() + TIMEOUT_MS };
      method.call(client, request, new Metadata(), options, (error, response) =>
        error ? reject(error) : resolve(response),
      );
    });
}

/** Acts as anybody on the services at an address (host:port). */
export function connectPeople(address: string): People & { close(): void } {
  const users = new UserServiceClient(address, clientCredentials({}), CHANNEL_OPTIONS);
  const posts = new PostServiceClient(address, clientCredentials({}), CHANNEL_OPTIONS);
  return {
    ...actsOnUsers(users),
    ...actsOnPosts(posts),
    close: () => {
      users.close();
      posts.close();
    },
  };
}

type OnUsers = "introduce" | "isKnown" | "list" | "summary" | "followingOf" | "follow" | "unfollow" | "followMany";

function actsOnUsers(client: UserServiceClient): Pick<People, OnUsers> {
  const setProfile = calling(client, client.setProfile);
  const getProfile = calling(client, client.getProfile);
  const listProfiles = calling(client, client.listProfiles);
  const getCounts = calling(client, client.getFollowCounts);
  const getFollowing = calling(client, client.getFollowingList);
  const [follow, unfollow, followMany] = [
    calling(client, client.follow),
    calling(client, client.unfollow),
    calling(client, client.followMany),
  ];
  return {
    introduce: async (user_id, display_name) => {
      await setProfile({ user_id, display_name, bio: "", avatar_url: "" });
    },
    isKnown: async (user_id) => (await unlessMissing(getProfile({ user_id }))) !== undefined,
    list: async (prefix, page_size) =>
      (await listProfiles({ prefix, page_size, page_token: "" })).profiles.map(({ user_id }) => user_id),
    summary: async (user_id) => ({ user_id, ...(await getCounts({ user_id })) }),
    followingOf: async (user_id) => (await getFollowing({ user_id, page_size: 0, page_token: "" })).user_ids,
    follow: async (pair) => (await follow(pair)).changed,
    unfollow: async (pair) => (await unfollow(pair)).changed,
    followMany: async (pairs) => (await followMany({ follows: [...pairs] })).changed,
  };
}

type OnPosts = "post" | "remove" | "drop" | "drops";

function actsOnPosts(client: PostServiceClient): Pick<People, OnPosts> {
  const createDrop = calling(client, client.createDrop);
  const deleteDrop = calling(client, client.deleteDrop);
  const getDrops = calling(client, client.getDrops);
  const drop: People["drop"] = async (dropId) => {
    const { results } = await getDrops({ drop_ids: [dropId], viewer_id: "" });
    return results[0] && seen(results[0]);
  };
  return {
    post: async ({ recipients = [], ...draft }) => {
      const request = CreateDropRequest.fromPartial({ ...draft, recipients: [...recipients] });
      return seenDetails((await createDrop(request)).drop as DropDetails);
    },
    remove: async (dropId) => {
      const held = await drop(dropId);
      if (held === undefined || held.deleted) return undefined;
      await deleteDrop({ drop_id: dropId, user_id: held.author });
      return held;
    },
    drop,
    drops: async (dropIds) => {
      if (dropIds.length === 0) return [];
      const { results } = await getDrops({ drop_ids: [...dropIds], viewer_id: "" });
      const found = new Map(results.map((result) => [idOf(result), seen(result)]));
      return dropIds.map((id) => found.get(id) ?? unseen(id));
    },
  };
}

const idOf = ({ drop, tombstone }: GetDropResponse): string => drop?.drop_id ?? tombstone?.id ?? "";

function seen({ drop, tombstone }: GetDropResponse): SeenDrop {
  return drop ? seenDetails(drop) : { ...unseen(tombstone?.id ?? ""), deleted: true };
}

function seenDetails({ drop_id, user_id, created_at, visibility, body }: DropDetails): SeenDrop {
  return { drop_id, author: user_id, created_at, visibility: nameOf(visibility), body, deleted: false };
}

const unseen = (drop_id: string): SeenDrop => ({
  drop_id,
  author: "",
  created_at: null,
  visibility: null,
  body: "",
  deleted: false,
});

const nameOf = (visibility: Visibility): string => (Visibility[visibility] ?? "unknown").toLowerCase();

export const visibilityNamed = (name: string): Visibility =>
  Visibility[name.toUpperCase() as keyof typeof Visibility] ?? Visibility.UNSPECIFIED;

async function unlessMissing<Response>(asked: Promise<Response>): Promise<Response | undefined> {
  try {
    return await asked;
  } catch (error) {
    if ((error as ServiceError).code === status.NOT_FOUND) return undefined;
    throw error;
  }
}
