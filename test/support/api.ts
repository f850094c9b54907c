import { credentials } from "@grpc/grpc-js";
import { ListServiceClient, ListServiceService } from "../../src/gen/avion/lists.js";
import {
  type CreateDropRequest,
  type DropDetails,
  PostServiceClient,
  PostServiceService,
  type PutRemoteObjectRequest,
  RemoteKind,
  Visibility,
} from "../../src/gen/avion/posts.js";
import { UserServiceClient, UserServiceService } from "../../src/gen/avion/users.js";
import { callsOf } from "./grpc.js";

/** The users and posts services as their clients call them. */
export type Api = ReturnType<typeof openApi>;

/** Connects to both services at one address. */
export function openApi(address: string) {
  const toPosts = new PostServiceClient(address, credentials.createInsecure());
  const toUsers = new UserServiceClient(address, credentials.createInsecure());
  const toLists = new ListServiceClient(address, credentials.createInsecure());
  const lists = callsOf(toLists, ListServiceService);
  const posts = callsOf(toPosts, PostServiceService);
  const users = callsOf(toUsers, UserServiceService);
  return {
    async post(user_id: string, more: Partial<CreateDropRequest> = {}): Promise<DropDetails> {
      const { drop } = await posts.createDrop({
        ...{ user_id, visibility: Visibility.PUBLIC, body: "Hello", ...more },
      });
      return drop as DropDetails;
    },
    edit: posts.editDrop,
    deleteDrop: posts.deleteDrop,
    getDrop: posts.getDrop,
    dropsOf: posts.getDropsByUserId,
    userDrops: posts.listUserDrops,
    like: posts.likeDrop,
    counts: posts.getCounts,
    putRemote: async (more: Pick<PutRemoteObjectRequest, "uri"> & Partial<PutRemoteObjectRequest>) =>
      posts.putRemoteObject({
        ...{ kind: RemoteKind.DROP, created_at: Date.now(), document: "{}", visibility: Visibility.PUBLIC, ...more },
      }),
    getRemote: posts.getRemoteObject,
    deleteRemote: posts.deleteRemoteObject,
    putReaction: posts.putRemoteReaction,
    deleteReaction: posts.deleteRemoteReaction,
    follow: users.follow,
    unfollow: users.unfollow,
    accept: users.acceptFollow,
    removeFollower: users.removeFollower,
    requests: users.listFollowRequests,
    setProfile: users.setProfile,
    followers: users.getFollowersList,
    following: users.getFollowingList,
    isFollowing: users.isFollowing,
    share: posts.shareDrop,
    unshare: posts.unshareDrop,
    lists,
    /** Makes a list with these members. */
    createList: async (user_id: string, ...member_ids: string[]): Promise<string> => {
      const { list } = await lists.createList({ user_id, title: "Friends" });
      const list_id = list?.list_id ?? "";
      await lists.addListMembers({ user_id, list_id, member_ids });
      return list_id;
    },
    block: users.block,
    unblock: users.unblock,
    mute: users.mute,
    unmute: users.unmute,
    setStanding: users.setStanding,
    erase: users.eraseUser,
    erasure: users.getErasure,
    close: () => {
      toPosts.close();
      toUsers.close();
      toLists.close();
    },
  };
}
