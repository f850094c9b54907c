import { type Drop, type PostServiceServer, Visibility } from "../gen/avion/posts.js";
import { idFault } from "../kernel/ids.js";
import type { DropVisibility, WorldDrop } from "./drops.js";
import type { Faults } from "./faults.js";
import { unary } from "./unary.grpc.js";
import type { WorldReads } from "./world.js";
import { invalid } from "./world-error.js";

export interface PostServiceDeps {
  readonly world: Pick<WorldReads, "dropsByUser" | "listDrops">;
  readonly faults?: Faults;
}

const VISIBILITY: Record<DropVisibility, Visibility> = {
  public: Visibility.PUBLIC,
  unlisted: Visibility.UNLISTED,
  followers: Visibility.FOLLOWERS,
  direct: Visibility.DIRECT,
};

/** The drops over gRPC. */
export function createPostService({ world, faults }: PostServiceDeps): PostServiceServer {
  const service = { service: "posts", faults } as const;
  return {
    getDropsByUserId: unary({
      ...service,
      method: "GetDropsByUserID",
      userOf: (request) => request.user_id,
      answer: (request) => {
        const fault = idFault(request.user_id);
        if (fault !== undefined) throw invalid("user_id", fault);
        return { drops: world.dropsByUser(request.user_id, request).map(presentDrop) };
      },
    }),
    listDrops: unary({
      ...service,
      method: "ListDrops",
      answer: (request) => {
        const page = world.listDrops(request);
        return { drops: page.items.map(presentDrop), next_page_token: page.next_page_token };
      },
    }),
  };
}

function presentDrop({ drop_id, user_id, visibility, created_at, deleted, recipients }: WorldDrop): Drop {
  return { drop_id, user_id, visibility: VISIBILITY[visibility], created_at, deleted, recipients: [...recipients] };
}
