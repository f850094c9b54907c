import { type Client, type ServiceError, status } from "@grpc/grpc-js";
import {
  type Counts,
  type GetDropsByUserIDRequest,
  type ListDropsRequest,
  PostServiceService,
} from "../../gen/avion/posts.js";
import { type ListFollowChangesRequest, UserServiceService } from "../../gen/avion/users.js";
import type { IdPage } from "../../kernel/paging.js";
import { checkPage, totalOf, validDrops, validUsers } from "./answers.js";
import { connectUpstream, createCallUpstream, nameOf, type TlsFiles } from "./call.js";

interface PageRequest {
  readonly user: string;
  readonly size: number;
  readonly token: string;
  /** ms since the epoch. */
  readonly deadline?: number | undefined;
}

export type Upstreams = ReturnType<typeof onUsers> & ReturnType<typeof onPosts>;

export type Followings = ReturnType<typeof connectFollowings>;

export type UpstreamChannels = ReturnType<typeof openUpstreamChannels>;

const isAnswered = (error: unknown, code: status): boolean =>
  error instanceof Error && (error.cause as ServiceError | undefined)?.code === code;

export const isUnimplemented = (error: unknown): boolean => isAnswered(error, status.UNIMPLEMENTED);

export const isInvalidArgument = (error: unknown): boolean => isAnswered(error, status.INVALID_ARGUMENT);

export interface UpstreamOptions {
  readonly userServiceAddr: string;
  readonly postServiceAddr: string;
  readonly tls: TlsFiles;
}

/** Connects at the first call, and reconnects by itself. */
export function openUpstreamChannels(options: UpstreamOptions) {
  const users = connectUpstream(options.userServiceAddr, options.tls);
  const posts = connectUpstream(options.postServiceAddr, options.tls);
  return {
    /** Each caller judges by its own calls whether an upstream is unavailable. */
    upstreams: (): Upstreams => ({ ...onUsers(users), ...onPosts(posts) }),
    close(): void {
      users.close();
      posts.close();
    },
  };
}

export function connectUpstreams(options: UpstreamOptions): Upstreams & Pick<UpstreamChannels, "close"> {
  const { upstreams, close } = openUpstreamChannels(options);
  return { ...upstreams(), close };
}

export function connectFollowings(address: string, tls: TlsFiles) {
  const users = connectUpstream(address, tls);
  return { ...onUsers(users), close: () => users.close() };
}

export function connectPosts(address: string, tls: TlsFiles) {
  const posts = connectUpstream(address, tls);
  return { ...onPosts(posts), close: () => posts.close() };
}

function onUsers(users: Client) {
  const call = createCallUpstream(users);
  const { getFollowersList, getFollowingList, isFollowing, listFollowChanges } = UserServiceService;
  const list = async (
    method: typeof getFollowersList | typeof getFollowingList,
    page: PageRequest,
  ): Promise<IdPage> => {
    const { user, size, token, deadline } = page;
    const request = { user_id: user, page_size: size, page_token: token };
    const {
      user_ids: ids,
      next_page_token: next,
      total_count,
    } = await call(method, request, { subject: user, deadline });
    checkPage(nameOf(method), token, { length: ids.length, next });
    const total = totalOf(total_count, { length: ids.length, next });
    return { ids: validUsers(nameOf(method), ids), next, total };
  };
  return {
    followers: (page: PageRequest) => list(getFollowersList, page),
    following: (page: PageRequest) => list(getFollowingList, page),
    /** In the order asked for. */
    isFollowing: async (user: string, others: readonly string[]): Promise<readonly boolean[]> =>
      (await call(isFollowing, { follower_id: user, following_ids: [...others] }, { subject: user })).following,
    /** One page of the edges changed in a window. */
    changedEdges: async (request: ListFollowChangesRequest) => {
      const { changes, next_page_token: next } = await call(listFollowChanges, request, {
        subject: "ListFollowChanges",
      });
      checkPage("ListFollowChanges", request.page_token, { length: changes.length, next });
      return { changes, next };
    },
  };
}

function onPosts(posts: Client) {
  const call = createCallUpstream(posts);
  // An answer here says nothing about calls for a user.
  const callRetention = createCallUpstream(posts);
  const { getDropsByUserId, getCounts, listDrops, getRetention } = PostServiceService;
  return {
    /** Newest first. */
    dropsByUser: async (request: GetDropsByUserIDRequest, deadline?: number) => {
      const { drops } = await call(getDropsByUserId, request, { subject: request.user_id, deadline });
      return validDrops("GetDropsByUserID", drops);
    },
    /** At most 200 drops of one user. */
    counts: async (user: string, ids: readonly string[]): Promise<readonly Counts[]> =>
      (await call(getCounts, { drop_ids: [...ids] }, { subject: user })).counts,
    /** One page of the drops changed in a window. */
    changedDrops: async (request: ListDropsRequest) => {
      const { drops, next_page_token: next } = await call(listDrops, request, { subject: "ListDrops" });
      checkPage("ListDrops", request.page_token, { length: drops.length, next });
      return { drops, next };
    },
    retention: () => callRetention(getRetention, {}, { subject: "GetRetention" }),
  };
}
