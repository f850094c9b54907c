import { connectUpstreams, type UpstreamOptions } from "../platform/grpc/upstreams.js";
import { type Check, checked } from "./doctor.js";

const TIMEOUT_MS = 3_000;
/** Asked for as a user; an answer of any kind shows that the service is there. */
const PROBE = "avion-doctor";

/** Checks that both upstreams answer the calls the timelines need. */
export function upstreamChecks(options: UpstreamOptions): Check[] {
  const users = `UserService ${options.userServiceAddr}`;
  const posts = `PostService ${options.postServiceAddr}`;
  const advice = (variable: string): string => `start it there, or set ${variable} to where it is`;
  return [
    checked(users, advice("TIMELINE_USER_SERVICE_ADDR"), async () => {
      const upstreams = connectUpstreams(options);
      const deadline = Date.now() + TIMEOUT_MS;
      try {
        await upstreams.followers({ user: PROBE, size: 1, token: "", deadline });
        await upstreams.following({ user: PROBE, size: 1, token: "", deadline });
      } finally {
        upstreams.close();
      }
      return [{ what: users, state: "ok", says: "answers" }];
    }),
    checked(posts, advice("TIMELINE_POST_SERVICE_ADDR"), async () => {
      const upstreams = connectUpstreams(options);
      try {
        await upstreams.dropsByUser({ user_id: PROBE, limit: 1, max_id: "", before: 0 }, Date.now() + TIMEOUT_MS);
      } finally {
        upstreams.close();
      }
      return [{ what: posts, state: "ok", says: "answers" }];
    }),
  ];
}
