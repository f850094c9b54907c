import type { ListRevisionsRequest, ListRevisionsResponse } from "../gen/avion/posts.js";
import { readSize } from "../kernel/paging.js";
import { findDrop, type PostsDeps } from "./deps.js";
import { TEXT_PAGES } from "./limits.js";
import { presentDetails } from "./present.js";
import { readDropId, readViewer } from "./request.js";

/** Above every revision. */
const NO_REVISION = 2 ** 31;

/** The versions of a drop, newest first; none of a deleted one. */
export const listRevisions =
  (deps: PostsDeps) =>
  async (request: ListRevisionsRequest): Promise<ListRevisionsResponse> => {
    const dropId = readDropId("drop_id", request.drop_id);
    const list = ["revisions", dropId] as const;
    const size = readSize("page_size", request.page_size, TEXT_PAGES);
    const [below] = deps.tokens.read<[number]>(list, request.page_token) ?? [NO_REVISION];
    const viewer = readViewer(request.viewer_id);
    if (viewer !== undefined) await findDrop(deps, dropId, viewer);
    const versions = await deps.store.drops.revisions(dropId, below, size + 1);
    if (versions.length === 0) await findDrop(deps, dropId);
    const { items, nextPageToken } = deps.tokens.page(list, versions, size, ({ revision }) => [revision]);
    return { revisions: items.map(presentDetails), next_page_token: nextPageToken };
  };
