import { type ServiceError, status } from "@grpc/grpc-js";
import {
  type Drop,
  type GetDropsByUserIDRequest,
  type GetRetentionResponse,
  type ListDropsRequest,
  PostServiceClient,
} from "../../gen/avion/posts.js";
import {
  type FollowChange,
  type GetFollowersListResponse,
  type ListFollowChangesRequest,
  type GetFollowersListRequest as ListRequest,
  UserServiceClient,
} from "../../gen/avion/users.js";
import type { IdPage } from "../../kernel/paging.js";
import { checkPage, validDrops, validUsers } from "./answers.js";
import { CHANNEL_OPTIONS, callUpstream, clientCredentials, type TlsFiles, type UpstreamCall } from "./call.js";
import { createMajority, createProbe, type Majority, type Probe } from "./failing.js";

export interface PageRequest {
  readonly user: string;
  readonly size: number;
  readonly token: string;
  /** ms since the epoch. */
  readonly deadline?: number | undefined;
}

export interface Upstreams {
  followers(page: PageRequest): Promise<IdPage>;
  following(page: PageRequest): Promise<IdPage>;
  /** Newest first. */
  dropsByUser(request: GetDropsByUserIDRequest, deadline?: number): Promise<readonly Drop[]>;
  /** One page of the drops changed in a window. */
  changedDrops(request: ListDropsRequest): Promise<{ readonly drops: readonly Drop[]; readonly next: string }>;
  retention(): Promise<GetRetentionResponse>;
  /** One page of the edges changed in a window. */
  changedEdges(
    request: ListFollowChangesRequest,
  ): Promise<{ readonly changes: readonly FollowChange[]; readonly next: string }>;
}

export interface UpstreamChannels {
  /** Each caller judges by its own calls whether an upstream is away. */
  upstreams(): Upstreams;
  close(): void;
}

export function isUnimplemented(error: unknown): boolean {
  const cause = error instanceof Error ? (error.cause as ServiceError | undefined) : undefined;
  return cause?.code === status.UNIMPLEMENTED;
}

export interface UpstreamOptions {
  readonly userServiceAddr: string;
  readonly postServiceAddr: string;
  readonly tls: TlsFiles;
}

function stateOf(): { readonly majority: Majority; readonly probe: Probe } {
  const majority = createMajority();
  return { majority, probe: createProbe(majority) };
}

/** Connects at the first call, and reconnects by itself. */
export function openUpstreamChannels(options: UpstreamOptions): UpstreamChannels {
  const credentials = clientCredentials(options.tls);
  const users = new UserServiceClient(options.userServiceAddr, credentials, CHANNEL_OPTIONS);
  const posts = new PostServiceClient(options.postServiceAddr, credentials, CHANNEL_OPTIONS);
  return {
    upstreams: () => upstreamsOver(users, posts),
    close() {
      users.close();
      posts.close();
    },
  };
}

export function connectUpstreams(options: UpstreamOptions): Upstreams & Pick<UpstreamChannels, "close"> {
  const channels = openUpstreamChannels(options);
  return { ...channels.upstreams(), close: () => channels.close() };
}

function upstreamsOver(users: UserServiceClient, posts: PostServiceClient): Upstreams {
  const ofUsers = stateOf();
  const list = async (
    name: string,
    call: UpstreamCall<ListRequest, GetFollowersListResponse>["call"],
    page: PageRequest,
  ): Promise<IdPage> => {
    const answer = await callUpstream({
      client: users,
      name,
      call,
      request: { user_id: page.user, page_size: page.size, page_token: page.token },
      subject: page.user,
      ...ofUsers,
      deadline: page.deadline,
    });
    checkPage(name, page.token, { length: answer.user_ids.length, next: answer.next_page_token });
    return { ids: validUsers(name, answer.user_ids), next: answer.next_page_token };
  };
  return {
    followers: (page) => list("GetFollowersList", users.getFollowersList.bind(users), page),
    following: (page) => list("GetFollowingList", users.getFollowingList.bind(users), page),
    ...onPosts(posts),
    async changedEdges(request) {
      const answer = await callUpstream({
        client: users,
        name: "ListFollowChanges",
        call: users.listFollowChanges.bind(users),
        request,
        subject: "ListFollowChanges",
        ...ofUsers,
      });
      checkPage("ListFollowChanges", request.page_token, {
        length: answer.changes.length,
        next: answer.next_page_token,
      });
      return { changes: answer.changes, next: answer.next_page_token };
    },
  };
}

function onPosts(posts: PostServiceClient): Pick<Upstreams, "dropsByUser" | "changedDrops" | "retention"> {
  const ofPosts = stateOf();
  const ofRetention = stateOf();
  return {
    async dropsByUser(request, deadline) {
      const answer = await callUpstream({
        client: posts,
        name: "GetDropsByUserID",
        call: posts.getDropsByUserId.bind(posts),
        request,
        subject: request.user_id,
        ...ofPosts,
        deadline,
      });
      return validDrops("GetDropsByUserID", answer.drops);
    },
    async changedDrops(request) {
      const answer = await callUpstream({
        client: posts,
        name: "ListDrops",
        call: posts.listDrops.bind(posts),
        request,
        subject: "ListDrops",
        ...ofPosts,
      });
      checkPage("ListDrops", request.page_token, { length: answer.drops.length, next: answer.next_page_token });
      return { drops: answer.drops, next: answer.next_page_token };
    },
    retention: () =>
      callUpstream({
        client: posts,
        name: "GetRetention",
        call: posts.getRetention.bind(posts),
        request: {},
        subject: "GetRetention",
        // An answer here says nothing about calls for a user.
        ...ofRetention,
      }),
  };
}
