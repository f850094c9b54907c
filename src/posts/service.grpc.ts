import { type PostServiceServer, PostServiceService } from "../gen/avion/posts.js";
import type { Logger } from "../kernel/logger.js";
import type { Service } from "../platform/grpc/serve.js";
import { unary } from "../platform/grpc/unary.js";
import { createDrop } from "./create-drop.js";
import { deleteDrop } from "./delete-drop.js";
import type { PostsDeps } from "./deps.js";
import { editDrop } from "./edit-drop.js";
import { getDrop, getDrops, listRevisions } from "./get-drop.js";
import { getDropsByUser } from "./get-drops-by-user.js";
import { getRetention, listDrops } from "./list-drops.js";
import { listReplies } from "./list-replies.js";
import { putRemoteObject } from "./put-remote-object.js";
import { getCounts, react } from "./react.js";
import { deleteRemoteObject, getRemoteObject, resolveWebfinger } from "./remote-objects.js";

export function createPostsService(deps: PostsDeps, log: Logger): Service {
  const implementation: PostServiceServer = {
    getDropsByUserId: unary("GetDropsByUserID", log, getDropsByUser(deps)),
    listDrops: unary("ListDrops", log, listDrops(deps)),
    getRetention: unary("GetRetention", log, getRetention(deps)),
    createDrop: unary("CreateDrop", log, createDrop(deps)),
    editDrop: unary("EditDrop", log, editDrop(deps)),
    deleteDrop: unary("DeleteDrop", log, deleteDrop(deps)),
    getDrop: unary("GetDrop", log, getDrop(deps)),
    getDrops: unary("GetDrops", log, getDrops(deps)),
    listRevisions: unary("ListRevisions", log, listRevisions(deps)),
    listReplies: unary("ListReplies", log, listReplies(deps)),
    likeDrop: unary("LikeDrop", log, react(deps, "like", true)),
    unlikeDrop: unary("UnlikeDrop", log, react(deps, "like", false)),
    shareDrop: unary("ShareDrop", log, react(deps, "share", true)),
    unshareDrop: unary("UnshareDrop", log, react(deps, "share", false)),
    getCounts: unary("GetCounts", log, getCounts(deps)),
    putRemoteObject: unary("PutRemoteObject", log, putRemoteObject(deps)),
    getRemoteObject: unary("GetRemoteObject", log, getRemoteObject(deps)),
    deleteRemoteObject: unary("DeleteRemoteObject", log, deleteRemoteObject(deps)),
    resolveWebfinger: unary("ResolveWebfinger", log, resolveWebfinger(deps)),
  };
  return { name: "avion.PostService", definition: PostServiceService, implementation };
}
