import type { Upstreams as Services } from "../platform/grpc/upstreams.js";
import type { Upstreams } from "./superseded.js";

const DROPS_A_PAGE = 200;
const FOLLOWING_A_PAGE = 1_000;

/** The upstreams as old letters are checked against them. */
export function createUpstreams(services: () => Services): Upstreams {
  return {
    drops: (user_id, { before, drop: max_id }) =>
      services().dropsByUser({ user_id, limit: DROPS_A_PAGE, max_id, before }),
    following: (user, token) => services().following({ user, token, size: FOLLOWING_A_PAGE }),
  };
}
