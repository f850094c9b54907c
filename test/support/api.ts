import { type CallOptions, type Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import {
  type CreateDropRequest,
  type DropDetails,
  PostServiceClient,
  type RemoteKind,
  Visibility,
} from "../../src/gen/avion/posts.js";
import { UserServiceClient } from "../../src/gen/avion/users.js";

type Method<Request, Response> = (
  request: Request,
  metadata: Metadata,
  options: Partial<CallOptions>,
  callback: (error: ServiceError | null, response: Response) => void,
) => unknown;

const TIMEOUT_MS = 10_000;

/** The users and posts services as their clients call them. */
export type Api = ReturnType<typeof openApi>;

/** Connects to both services at one address. */
export function openApi(address: string) {
  const posts = new PostServiceClient(address, credentials.createInsecure());
  const users = new UserServiceClient(address, credentials.createInsecure());
  const on =
    <Request, Response>(client: Client, method: Method<Request, Response>) =>
    (request: Request): Promise<Response> =>
      new Promise((resolve, reject) => {
        const options = { deadline: Date.now() + TIMEOUT_MS };
        method.call(client, request, new Metadata(), options, (error, response) =>
          error ? reject(error) : resolve(response),
        );
      });
  const create = on(posts, posts.createDrop);
  return {
    async post(user_id: string, more: Partial<CreateDropRequest> = {}): Promise<DropDetails> {
      const { drop } = await create({
        ...{ user_id, visibility: Visibility.PUBLIC, recipients: [], reply_to: "", summary: "", body: "Hello" },
        ...{ created_at: 0, idempotency_key: "", ...more },
      });
      return drop as DropDetails;
    },
    edit: on(posts, posts.editDrop),
    deleteDrop: on(posts, posts.deleteDrop),
    getDrop: on(posts, posts.getDrop),
    dropsOf: on(posts, posts.getDropsByUserId),
    like: on(posts, posts.likeDrop),
    counts: on(posts, posts.getCounts),
    putRemote: async (uri: string, kind: RemoteKind, actor_uri: string, created_at: number) =>
      on(
        posts,
        posts.putRemoteObject,
      )({
        ...{ uri, kind, actor_uri, created_at, document: "{}", public_key: "", webfinger: "", max_age: 0 },
      }),
    follow: on(users, users.follow),
    unfollow: on(users, users.unfollow),
    followers: on(users, users.getFollowersList),
    following: on(users, users.getFollowingList),
    close: () => {
      posts.close();
      users.close();
    },
  };
}
