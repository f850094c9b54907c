import type { GetRetentionResponse } from "../gen/avion/posts.js";
import type { PostsDeps } from "./deps.js";

/** Down to when drops are kept. */
export const getRetention =
  ({ store }: PostsDeps) =>
  async (): Promise<GetRetentionResponse> => ({ kept_since: await store.retention.keptSince() });
