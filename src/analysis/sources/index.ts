import { isDid } from "../../contracts/analysis.js";
import type { Logger } from "../../kernel/logger.js";
import { SECOND } from "../../kernel/time.js";
import type { State } from "../../state/index.js";
import { startSampling } from "../../telemetry/samples.js";
import type { AnalysisConfig } from "../config.js";
import { sampleTokens } from "../observe.js";
import { createAtprotoSource } from "./atproto.http.js";
import { createPostsSource, type PostReads, type UserReads } from "./posts.grpc.js";
import type { Source } from "./source.js";

const SAMPLE_MS = 10 * SECOND;

interface SourcesOptions {
  readonly posts: PostReads;
  readonly users: UserReads | undefined;
  readonly state: Pick<State, "limits">;
  readonly config: Pick<AnalysisConfig, "atprotoUrl" | "sourceRate">;
  readonly log: Logger;
}

/** Chooses the source of an account by the form of its id. */
export function createSources({ posts, users, state, config, log }: SourcesOptions) {
  const bucket = state.limits.openTokens(config.sourceRate);
  const sampling = startSampling([sampleTokens(bucket.left)], { everyMs: SAMPLE_MS, log });
  const local = createPostsSource(posts, users);
  const atproto = createAtprotoSource({ url: config.atprotoUrl, bucket });
  return { of: (account: string): Source => (isDid(account) ? atproto : local), close: sampling.close };
}
