import { isUnimplemented, type Upstreams } from "../../platform/grpc/upstreams.js";
import type { ReadKeptSince } from "./retention.js";

/** Reads it from the posts service. One that lacks the method drops nothing for its age. */
export function createReadKeptSince(upstreams: () => Upstreams): ReadKeptSince {
  return async () => {
    try {
      return (await upstreams().retention()).kept_since;
    } catch (error) {
      if (isUnimplemented(error)) return undefined;
      throw error;
    }
  };
}
