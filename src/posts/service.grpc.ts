import { PostServiceService } from "../gen/avion/posts.js";
import type { Logger } from "../kernel/logger.js";
import type { Service } from "../platform/grpc/serve.js";
import { unaryService } from "../platform/grpc/unary.js";
import type { PostsDeps } from "./drops.js";
import { listDrops } from "./list-drops.js";
import { reactToDrops } from "./reactions.js";
import { readDrops } from "./read-drops.js";
import { remoteObjects } from "./remote-objects.js";
import { writeDrops } from "./write-drops.js";

export function createPostsService(deps: PostsDeps, log: Logger): Service {
  const drops = { ...listDrops(deps), ...readDrops(deps), ...writeDrops(deps), ...reactToDrops(deps) };
  return unaryService(PostServiceService, { ...drops, ...remoteObjects(deps) }, log);
}
