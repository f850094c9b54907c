import { oneLine } from "../../kernel/errors.js";
import { checkTls } from "../../platform/grpc/credentials.js";
import { adviceOn } from "../../platform/refusals.js";
import { connectUpstreams, type UpstreamOptions } from "../../upstreams/upstreams.grpc.js";
import { type Check, checked } from "./doctor.js";

const TIMEOUT_MS = 3_000;
/** The id is that of any user; the answer does not matter. */
const PROBE = "avion-doctor";

/** grpc-js wraps the reason of an UNAVAILABLE into the texts of its balancer and its resolver. */
function withoutBalancer(error: unknown): Error {
  return new Error(oneLine(error).replace(/round_robin: .*Last error: (?:Error: )?(.*?)\.? Resolution note:.*$/, "$1"));
}

/** Checks that both upstreams answer the calls that reads and fan-out make. One at `ownAddress` is not up before its process. */
export function upstreamChecks(options: UpstreamOptions, ownAddress?: string): Check[] {
  type ProbeCall = (upstreams: ReturnType<typeof connectUpstreams>, deadline: number) => Promise<unknown>;
  const answers = (name: string, address: string, variable: string, calls: readonly ProbeCall[]): Check => {
    const advice = (error: unknown) => adviceOn(error, `start it there, or set ${variable} to where it is`);
    return checked(`${name} ${address}`, advice, async (upstream) => {
      await checkTls({ name, address }, options.tls);
      const upstreams = connectUpstreams(options);
      const deadline = Date.now() + TIMEOUT_MS;
      try {
        for (const call of calls) await call(upstreams, deadline);
      } catch (error) {
        if (address !== ownAddress) throw withoutBalancer(error);
        return [upstream.warning("does not answer yet", "serve starts it: it is a role of this process")];
      } finally {
        upstreams.close();
      }
      return [upstream.ok("answers")];
    });
  };
  const page = { user: PROBE, size: 1, token: "" };
  return [
    answers("UserService", options.userServiceAddr, "TIMELINE_USER_SERVICE_ADDR", [
      (upstreams, deadline) => upstreams.followers({ ...page, deadline }),
      (upstreams, deadline) => upstreams.following({ ...page, deadline }),
    ]),
    answers("PostService", options.postServiceAddr, "TIMELINE_POST_SERVICE_ADDR", [
      (upstreams, deadline) => upstreams.dropsByUser({ author: PROBE, limit: 1, below: undefined }, deadline),
    ]),
  ];
}
