import type { DropsDeps, DropsStore } from "../drops/deps.js";
import type { createAdoption } from "./adopt.sql.js";
import type { createListReads } from "./lists.sql.js";
import type { ReactionStore } from "./reactions.sql.js";
import type { RepostStore } from "./reposts.sql.js";

export interface ReactionsStore extends DropsStore {
  readonly reactions: ReactionStore;
  readonly reposts: RepostStore;
  readonly lists: DropsStore["lists"] & ReturnType<typeof createListReads>;
  readonly links: ReturnType<typeof createAdoption>;
}

export interface ReactionsDeps extends DropsDeps {
  readonly store: ReactionsStore;
}
