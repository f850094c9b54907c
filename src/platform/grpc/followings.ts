import { UserServiceClient } from "../../gen/avion/users.js";
import type { IdPage } from "../../kernel/paging.js";
import { validUsers } from "./answers.js";
import { CHANNEL_OPTIONS, callUpstream, clientCredentials, type TlsFiles } from "./call.js";
import { createMajority, createProbe } from "./failing.js";

export interface Followings {
  /** In the order asked for. */
  isFollowing(user: string, others: readonly string[]): Promise<readonly boolean[]>;
  following(user: string, token: string): Promise<IdPage>;
  close(): void;
}

const A_PAGE = 1_000;

/** Connects at the first call, and reconnects by itself. */
export function connectFollowings(address: string, tls: TlsFiles): Followings {
  const client = new UserServiceClient(address, clientCredentials(tls), CHANNEL_OPTIONS);
  const majority = createMajority();
  const state = { client, majority, probe: createProbe(majority) };
  return {
    async isFollowing(user, others) {
      const answer = await callUpstream({
        ...state,
        name: "IsFollowing",
        call: client.isFollowing.bind(client),
        request: { follower_id: user, following_ids: [...others] },
        subject: user,
      });
      return answer.following;
    },
    async following(user, token) {
      const name = "GetFollowingList";
      const answer = await callUpstream({
        ...state,
        name,
        call: client.getFollowingList.bind(client),
        request: { user_id: user, page_size: A_PAGE, page_token: token },
        subject: user,
      });
      return { ids: validUsers(name, answer.user_ids), next: answer.next_page_token };
    },
    close: () => client.close(),
  };
}
