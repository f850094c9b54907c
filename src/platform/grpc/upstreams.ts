import { type Client, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import {
  type Counts,
  type Drop,
  type GetDropsByUserIDRequest,
  type ListDropsRequest,
  PostServiceService,
} from "../../gen/avion/posts.js";
import { type ListFollowChangesRequest, UserServiceService } from "../../gen/avion/users.js";
import type { AppError } from "../../kernel/errors.js";
import type { IdPage } from "../../kernel/paging.js";
import { checkPage, totalOf, validDrops, validUsers } from "./answers.js";
import { type Answered, connectUpstream, createCallUpstream, nameOf, promised } from "./call.js";
import type { TlsFiles } from "./credentials.js";

interface PageRequest {
  readonly user: string;
  readonly size: number;
  readonly token: string;
  /** ms since the epoch. */
  readonly deadline?: number | undefined;
}

/** The deadline is in ms since the epoch. */
export type ReadDropsByUser = (
  request: GetDropsByUserIDRequest,
  deadline: number | undefined,
  answered: Answered<readonly Drop[]>,
) => void;

export type Upstreams = ReturnType<typeof onUsers> & ReturnType<typeof onPosts>;

export type Users = ReturnType<typeof connectUsers>;

export type UpstreamChannels = ReturnType<typeof openUpstreamChannels>;

const isAnswered = (error: unknown, code: status): boolean =>
  error instanceof Error && (error.cause as ServiceError | undefined)?.code === code;

/** False for errors of Redis and NATS. */
export const isOfUpstream = (error: unknown): boolean =>
  error instanceof Error && (error.cause as ServiceError | undefined)?.metadata instanceof Metadata;

export const isUnimplemented = (error: unknown): boolean => isAnswered(error, status.UNIMPLEMENTED);

export const isNotFound = (error: unknown): boolean => isAnswered(error, status.NOT_FOUND);

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

export function connectUsers(address: string, tls: TlsFiles) {
  const users = connectUpstream(address, tls);
  return { ...onUsers(users), close: () => users.close() };
}

export function connectPosts(address: string, tls: TlsFiles) {
  const posts = connectUpstream(address, tls);
  return { ...onPosts(posts), close: () => posts.close() };
}

function onUsers(users: Client) {
  const { once: call, inTurn } = createCallUpstream(users);
  const { getFollowersList, getFollowingList, isFollowing, listFollowChanges, getProfile } = UserServiceService;
  const list = async (
    method: typeof getFollowersList | typeof getFollowingList,
    page: PageRequest,
  ): Promise<IdPage> => {
    const { user, size, token, deadline } = page;
    const request = { user_id: user, page_size: size, page_token: token };
    const ask = () => call(method, request, { subject: user, deadline });
    const answer = await (deadline === undefined ? inTurn(method, user, ask) : ask());
    const { user_ids: ids, next_page_token: next, total_count } = answer;
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
    /** @throws AppError, of which `isNotFound` tells that the user has none */
    profile: (user: string) => call(getProfile, { user_id: user }, { subject: user }),
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
  const { open, once: call, inTurn } = createCallUpstream(posts);
  const { getDropsByUserId, getCounts, listDrops, getRetention } = PostServiceService;
  /** Calls for one piece of work; each answer is newest first. */
  const openDropsByUser = (): ReadDropsByUser => {
    const call = open(getDropsByUserId);
    return (request, deadline, answered) =>
      call(request, { subject: request.user_id, deadline }, (error, response) => {
        if (error) return answered(error);
        let drops: readonly Drop[];
        try {
          drops = validDrops("GetDropsByUserID", response?.drops ?? [], request.max_id);
        } catch (broken) {
          return answered(broken as AppError);
        }
        answered(undefined, drops);
      });
  };
  return {
    openDropsByUser,
    /** Newest first. */
    dropsByUser: (request: GetDropsByUserIDRequest, deadline?: number): Promise<readonly Drop[]> => {
      const ask = () => promised<readonly Drop[]>((answered) => openDropsByUser()(request, deadline, answered));
      return deadline === undefined ? inTurn(getDropsByUserId, request.user_id, ask) : ask();
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
    retention: () => call(getRetention, {}, { subject: "GetRetention" }),
  };
}
