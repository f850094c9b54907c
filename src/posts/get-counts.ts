import type { GetCountsRequest, GetCountsResponse } from "../gen/avion/posts.js";
import type { PostsDeps } from "./deps.js";
import { MOST_COUNTS } from "./limits.js";
import { isUri, readDropIds } from "./request.js";

/** The counts of each drop asked for, in that order; zeros for deleted and unknown ones. */
export const getCounts =
  ({ store }: PostsDeps) =>
  async (request: GetCountsRequest): Promise<GetCountsResponse> => {
    const ids = readDropIds("drop_ids", request.drop_ids, MOST_COUNTS);
    const own = ids.filter((id) => !isUri(id));
    const counts = own.length === 0 ? [] : await store.reactions.counts(own);
    const byId = new Map(counts.map(({ dropId, likes, shares, replies }) => [dropId, { likes, shares, replies }]));
    return { counts: ids.map((drop_id) => ({ drop_id, ...(byId.get(drop_id) ?? NONE) })) };
  };

const NONE = { likes: 0, shares: 0, replies: 0 } as const;
