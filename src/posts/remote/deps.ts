import type { Logger } from "../../kernel/logger.js";
import type { ProfileOf } from "../drops/local-users.js";
import type { ReactionsDeps, ReactionsStore } from "../reactions/deps.js";
import type { AdoptDeps } from "../reactions/targets.js";
import type { createAudienceStore } from "./audience.sql.js";
import type { EraseUser, ErasureMarks } from "./deleted-actors.js";
import type { Fetcher } from "./fetch.js";
import type { createFetchStore } from "./fetches.sql.js";
import type { createLinkStore } from "./links.sql.js";
import type { createRemoteWrites } from "./remote.sql.js";
import type { createRemoteReactionStore } from "./remote-reactions.sql.js";

/** Makes the UserService ask a user before others follow them. @throws AppError `unavailable` while it is unavailable */
export type SetApproval = (userId: string, approves: boolean) => Promise<void>;

export interface RemoteStore extends ReactionsStore {
  readonly remote: ReactionsStore["remote"] & ReturnType<typeof createRemoteWrites>;
  readonly links: ReactionsStore["links"] & ReturnType<typeof createLinkStore>;
  readonly fetches: ReturnType<typeof createFetchStore>;
  readonly audience: ReturnType<typeof createAudienceStore>;
  readonly remoteReactions: ReturnType<typeof createRemoteReactionStore>;
  readonly erasure: ErasureMarks;
}

/** The maintenance and the erasure also link. */
export interface LinkDeps extends AdoptDeps {
  readonly store: RemoteStore;
}

export interface RemoteDeps extends ReactionsDeps {
  readonly store: RemoteStore;
  readonly eraseUser?: EraseUser | undefined;
  /** Without it the documents of actors decide about no follow. */
  readonly setApproval?: SetApproval | undefined;
  readonly profileOf?: ProfileOf;
  /** Without it nothing is fetched. */
  readonly fetcher?: Fetcher | undefined;
  readonly log: Logger;
}
