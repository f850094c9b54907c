import { createSources, startAnalysisService, startAnalysisWorker } from "../analysis/index.js";
import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { connectPosts } from "../platform/grpc/upstreams.js";
import { createNotifyUser } from "../platform/notify-user.js";
import { type ConsumerSlices, startConsumer } from "./consumers.js";
import type { RunningRole, StoringRoleDeps } from "./role.js";
import { VERSION } from "./version.js";

/** Analyses of accounts. */
export async function startAnalysisRole(
  deps: StoringRoleDeps<"analysis" | "upstreams" | ConsumerSlices>,
): Promise<RunningRole> {
  const { config, connections, db, log } = deps;
  const { nats, publish, scripts } = connections;
  const posts = connectPosts(config.upstreams.postServiceAddr as string, config.upstreams, log);
  const sources = createSources({ posts, scripts, config: config.analysis, log });
  const worker = startAnalysisWorker({
    nats,
    publish,
    scripts,
    db,
    sourceOf: sources.of,
    notify: createNotifyUser(connections),
    log,
  });
  const consuming = startConsumer(deps, {
    stream: STREAM.timeline,
    consumer: CONSUMER.analysis,
    handler: worker.handler,
    concurrency: config.analysis.concurrency,
    around: worker.process(config.analysis.concurrency),
    maxAttempts: worker.maxAttempts,
    storeDeadLetter: worker.storeDeadLetter(publish),
  });
  const service = await startAnalysisService({ nats, publish, version: VERSION, log });
  return {
    notReady: () => (consuming.healthy() ? undefined : "analysis: requests are not pulled"),
    close: async (graceMs) => {
      await Promise.all([consuming.close(graceMs), worker.close(), service.close(), sources.close()]);
      posts.close();
    },
  };
}
