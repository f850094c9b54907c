import type { GetDropResponse, GetDropsRequest, GetDropsResponse } from "../gen/avion/posts.js";

export interface ShownDropsRequest {
  readonly viewer: string;
  /** At most 100. */
  readonly ids: readonly string[];
  /** Of all calls together, ms since the epoch. */
  readonly deadline: number;
  /** Called before each further call. @throws what then ends the read */
  readonly beforeRetry: () => Promise<void>;
}

/**
 * Reads drops as a viewer sees them, with their states, by their ids. A drop that the service leaves out is missing, and
 * all are if it has no GetDrops.
 *
 * @throws AppError `failed`, `unavailable`, and what `beforeRetry` throws
 */
export type ReadShownDrops = (request: ShownDropsRequest) => Promise<ReadonlyMap<string, GetDropResponse>>;

interface ShownDropsDeps {
  readonly call: (request: GetDropsRequest, about: { subject: string; deadline: number }) => Promise<GetDropsResponse>;
  /** Returns true if the answer may be larger than a message. */
  readonly isExhausted: (error: unknown) => boolean;
  /** Returns true if the service takes fewer ids, or not one of these. */
  readonly isInvalidArgument: (error: unknown) => boolean;
  readonly isUnimplemented: (error: unknown) => boolean;
}

/** Reads with one call at a time. What is too much for a call is asked for again by halves. */
export function createShownDrops({ call, ...errors }: ShownDropsDeps): ReadShownDrops {
  return async ({ viewer, ids, deadline, beforeRetry }) => {
    const shown = new Map<string, GetDropResponse>();
    let size = ids.length;
    for (let [from, calls] = [0, 0]; from < ids.length; calls++) {
      if (calls > 0) await beforeRetry();
      const drop_ids = ids.slice(from, from + size);
      try {
        const { results } = await call(
          { drop_ids, viewer_id: viewer, with_state: true },
          { subject: viewer, deadline },
        );
        for (const result of results) shown.set(idOf(result), result);
        from += drop_ids.length;
      } catch (error) {
        if (errors.isUnimplemented(error)) break;
        const isRefused = errors.isInvalidArgument(error);
        if (!isRefused && !errors.isExhausted(error)) throw error;
        if (drop_ids.length > 1) size = drop_ids.length >> 1;
        else if (isRefused) [from, size] = [from + 1, ids.length];
        else throw error;
      }
    }
    return shown;
  };
}

const idOf = ({ drop, tombstone, remote }: GetDropResponse): string =>
  drop?.drop_id ?? tombstone?.id ?? remote?.uri ?? "";
