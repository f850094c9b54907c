import { type Drop, type GetDropsByUserIDRequest, PostServiceClient } from "../../gen/avion/posts.js";
import { UserServiceClient } from "../../gen/avion/users.js";
import { CHANNEL_OPTIONS, callUpstream, clientCredentials, type TlsFiles } from "./call.js";

/** One page of user ids; an empty token ends the list. */
export interface UserPage {
  readonly ids: readonly string[];
  readonly next: string;
}

/** A place in a list of users. */
export interface PageRequest {
  readonly user: string;
  readonly size: number;
  readonly token: string;
  /** Until when an answer is wanted, in ms since the epoch. */
  readonly deadline?: number | undefined;
}

/** The two services the timelines are built from, as far as they are called. */
export interface Upstreams {
  followers(page: PageRequest): Promise<UserPage>;
  following(page: PageRequest): Promise<UserPage>;
  /** An author's drops, newest first; see PostService.GetDropsByUserID. */
  dropsByUser(request: GetDropsByUserIDRequest, deadline?: number): Promise<readonly Drop[]>;
  close(): void;
}

/** Where the upstreams are. */
export interface UpstreamOptions {
  readonly userServiceAddr: string;
  readonly postServiceAddr: string;
  readonly tls: TlsFiles;
}

/** Opens the channels; they connect when first used and reconnect by themselves. */
export function connectUpstreams(options: UpstreamOptions): Upstreams {
  const credentials = clientCredentials(options.tls);
  const users = new UserServiceClient(options.userServiceAddr, credentials, CHANNEL_OPTIONS);
  const posts = new PostServiceClient(options.postServiceAddr, credentials, CHANNEL_OPTIONS);
  const listRequest = ({ user, size, token }: PageRequest) => ({ user_id: user, page_size: size, page_token: token });
  return {
    async followers(page) {
      const method = { name: "GetFollowersList", call: users.getFollowersList.bind(users) };
      const answer = await callUpstream(users, method, listRequest(page), page.deadline);
      return { ids: answer.user_ids, next: answer.next_page_token };
    },
    async following(page) {
      const method = { name: "GetFollowingList", call: users.getFollowingList.bind(users) };
      const answer = await callUpstream(users, method, listRequest(page), page.deadline);
      return { ids: answer.user_ids, next: answer.next_page_token };
    },
    async dropsByUser(request, deadline) {
      const method = { name: "GetDropsByUserID", call: posts.getDropsByUserId.bind(posts) };
      return (await callUpstream(posts, method, request, deadline)).drops;
    },
    close() {
      users.close();
      posts.close();
    },
  };
}
