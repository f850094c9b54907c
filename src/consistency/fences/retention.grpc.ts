import { isUnimplemented, type Upstreams } from "../../platform/grpc/upstreams.js";
import type { ReadRetentionStart } from "./retention.js";

/** Reads it from the posts service. One that lacks the method drops nothing for its age. */
export function createReadRetentionStart(upstreams: () => Upstreams): ReadRetentionStart {
  return async () => {
    try {
      return (await upstreams().retention()).kept_since;
    } catch (error) {
      if (isUnimplemented(error)) return undefined;
      throw error;
    }
  };
}
