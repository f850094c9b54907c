import type { PostsSource } from "../../contracts/outbox.js";
import type { PageTokens } from "../../kernel/paging.js";
import type { Clock } from "../../kernel/time.js";
import type { Limited } from "../../state/index.js";
import type { PostsConfig } from "../config.js";
import type { createCreation } from "./create.sql.js";
import type { createDropWrites } from "./drops.sql.js";
import type { createErasedReads } from "./erased.sql.js";
import type { createRetentionStore } from "./partitions.sql.js";
import type { createDropReads } from "./reads.sql.js";
import type { FollowedAmong, RelationsDeps } from "./relations.js";
import type { RemoteReads } from "./remote-drops.sql.js";
import type { createStateReads } from "./state.sql.js";
import type { createThreadReads } from "./thread.sql.js";
import type { createUserDrops } from "./user-drops.sql.js";

export interface DropsStore {
  readonly drops: ReturnType<typeof createDropReads> &
    ReturnType<typeof createDropWrites> & { readonly create: ReturnType<typeof createCreation> };
  readonly remote: RemoteReads;
  readonly lists: ReturnType<typeof createUserDrops>;
  readonly erased: ReturnType<typeof createErasedReads>;
  readonly states: ReturnType<typeof createStateReads>;
  readonly threads: ReturnType<typeof createThreadReads>;
  readonly retention: ReturnType<typeof createRetentionStore>;
}

export interface DropsDeps extends RelationsDeps {
  readonly store: DropsStore;
  readonly config: Omit<PostsConfig, "maxWaitingEvents">;
  readonly tokens: PageTokens;
  /** Asked if the UserService has no relations. */
  readonly followedAmong: FollowedAmong;
  readonly now: Clock;
  readonly wakeRelay: (source: PostsSource) => void;
  readonly isFull: () => boolean;
  readonly limited: Limited;
}
