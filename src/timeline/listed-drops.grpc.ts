import { isTime } from "../contracts/times.js";
import { Visibility } from "../gen/avion/posts.js";
import { idFault } from "../kernel/ids.js";
import { readPages } from "../kernel/paging.js";
import { isUnimplemented, type Upstreams } from "../platform/grpc/upstreams.js";

/** Own drops that changed since then, with the times of those that are public and not deleted; others: undefined. */
export type ListedDrops = ReadonlyMap<string, number | undefined>;

/** Resolves to undefined where the upstream has no ListDrops. `since` in ms since the epoch. */
export type ReadListedDrops = (since: number) => Promise<ListedDrops | undefined>;

const DROPS_A_PAGE = 1_000;

export function createReadListedDrops(upstreams: Pick<Upstreams, "changedDrops">): ReadListedDrops {
  return async (since) => {
    const listed = new Map<string, number | undefined>();
    const read = (page_token: string) =>
      upstreams.changedDrops({ since, until: 0, page_size: DROPS_A_PAGE, page_token });
    try {
      for await (const { drops } of readPages(read))
        for (const { drop_id, created_at, visibility, deleted } of drops) {
          if (idFault(drop_id) !== undefined || !isTime(created_at)) continue;
          listed.set(drop_id, visibility === Visibility.PUBLIC && !deleted ? created_at : undefined);
        }
    } catch (error) {
      if (isUnimplemented(error)) return undefined;
      throw error;
    }
    return listed;
  };
}
