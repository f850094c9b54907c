import { createSources, startAnalysisService, startAnalysisWorker } from "../analysis/index.js";
import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { prefixOf } from "../kernel/urls.js";
import { VERSION } from "../kernel/version.js";
import { connectPosts, connectUsers } from "../upstreams/upstreams.grpc.js";
import { startConsumer, startForgetting } from "./consumers.js";
import type { RunningRole, StoringRoleDeps } from "./role.js";

/**
 * Maximum number of analyses of a process at a time, including those that wait for a source. At most half of them are of
 * the AT Protocol. One holds up to 500 posts.
 */
const ANALYSES_AT_ONCE = 256;

export async function startAnalysisRole(deps: StoringRoleDeps): Promise<RunningRole> {
  const { config, connections, db, wraps, log } = deps;
  const concurrency = wraps?.limits?.analysesAtOnce ?? ANALYSES_AT_ONCE;
  const { nats, publish, state } = connections;
  const { userServiceAddr, postServiceAddr, tls } = config.upstreams;
  if (userServiceAddr === undefined)
    log.warn({}, "TIMELINE_USER_SERVICE_ADDR is not set: a user without drops is unknown to analyses");
  const posts = connectPosts(postServiceAddr as string, tls, log);
  const users = userServiceAddr === undefined ? undefined : connectUsers(userServiceAddr, tls, log);
  const sources = createSources({ posts, users, state, config: config.analysis, log });
  const worker = startAnalysisWorker({
    nats,
    publish,
    state,
    db,
    sourceOf: sources.of,
    pathPrefix: prefixOf(config.posts.publicUrl),
    log,
  });
  const consuming = startConsumer(deps, {
    stream: STREAM.timeline,
    consumer: CONSUMER.analysis,
    handler: worker.handler,
    concurrency,
    around: worker.process(concurrency),
    maxAttempts: worker.maxAttempts,
    storeDeadLetter: worker.storeDeadLetter(connections.storeDeadLetter),
  });
  const forgetting = await startForgetting(deps, "analyses", worker.forget);
  const service = await startAnalysisService({ nats, publish, version: VERSION, log });
  return {
    notReady: () => {
      if (!consuming.healthy()) return "analysis: requests are not fetched";
      return forgetting.healthy() ? undefined : "analysis: erasures are not fetched";
    },
    close: async (graceMs) => {
      const consumers = [consuming.close(graceMs), forgetting.close(graceMs)];
      await Promise.all([...consumers, worker.close(), service.close(), sources.close()]);
      posts.close();
      users?.close();
    },
  };
}
