import { credentials } from "@grpc/grpc-js";
import {
  type CreateDropRequest,
  type DropDetails,
  PostServiceClient,
  type PutRemoteObjectRequest,
  RemoteKind,
  Visibility,
} from "../../src/gen/avion/posts.js";
import { UserServiceClient } from "../../src/gen/avion/users.js";
import { calling } from "../../src/sandbox/world/people.grpc.js";

/** The users and posts services as their clients call them. */
export type Api = ReturnType<typeof openApi>;

/** Connects to both services at one address. */
export function openApi(address: string) {
  const posts = new PostServiceClient(address, credentials.createInsecure());
  const users = new UserServiceClient(address, credentials.createInsecure());
  const create = calling(posts, posts.createDrop);
  return {
    async post(user_id: string, more: Partial<CreateDropRequest> = {}): Promise<DropDetails> {
      const { drop } = await create({
        ...{ user_id, visibility: Visibility.PUBLIC, recipients: [], reply_to: "", summary: "", body: "Hello" },
        ...{ created_at: 0, idempotency_key: "", ...more },
      });
      return drop as DropDetails;
    },
    edit: calling(posts, posts.editDrop),
    deleteDrop: calling(posts, posts.deleteDrop),
    getDrop: calling(posts, posts.getDrop),
    dropsOf: calling(posts, posts.getDropsByUserId),
    like: calling(posts, posts.likeDrop),
    counts: calling(posts, posts.getCounts),
    putRemote: async (more: Pick<PutRemoteObjectRequest, "uri"> & Partial<PutRemoteObjectRequest>) =>
      calling(
        posts,
        posts.putRemoteObject,
      )({
        ...{ kind: RemoteKind.DROP, actor_uri: "", created_at: Date.now(), document: "{}", public_key: "" },
        ...{ webfinger: "", max_age: 0, visibility: Visibility.PUBLIC, recipients: [], ...more },
      }),
    follow: calling(users, users.follow),
    unfollow: calling(users, users.unfollow),
    followers: calling(users, users.getFollowersList),
    following: calling(users, users.getFollowingList),
    close: () => {
      posts.close();
      users.close();
    },
  };
}
