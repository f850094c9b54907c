import type { TimelineEntry } from "../contracts/timelines.js";
import { isNotFound, isUnimplemented, type Upstreams } from "../upstreams/upstreams.grpc.js";

const DROPS_A_PAGE = 200;

/** Yields what the posts service still lists of a user: another one may go on listing their drops. */
export async function* listedDrops(
  { dropsByUser }: Pick<Upstreams, "dropsByUser">,
  author: string,
): AsyncGenerator<readonly string[]> {
  let below: TimelineEntry | undefined;
  do {
    const request = { author, below, limit: DROPS_A_PAGE };
    const page = await dropsByUser(request).catch((error: unknown) => {
      if (isNotFound(error) || isUnimplemented(error)) return undefined;
      throw error;
    });
    if (page === undefined) return;
    yield page.drops.map(({ drop_id }) => drop_id);
    below = page.next;
  } while (below !== undefined);
}
